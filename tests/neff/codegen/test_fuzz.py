"""Random groups: the generated code says what the interpreter says, whatever is put together."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings

from neuron_compile.neff.target import detect
from neuron_compile.runtime.executable import ALIGNMENT
from tests import oracle
from tests.neff.codegen.large_results import every_result_large
from tests.neff.codegen.native import agree, outlined, plain, run
from tests.neff.codegen.random_groups import RandomGroup, groups

EXAMPLES = int(os.environ.get("NEURON_TEST_EXAMPLES", "25"))


def kind_of(text: str) -> str:
    """A group with one product goes to the kernels for products."""
    products = text.count("stablehlo.dot_general") + text.count("stablehlo.convolution")
    return "contract" if products == 1 else "loop"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(group=groups())
def test_random_groups(target: str, large: bool, group: RandomGroup) -> None:
    text = group.text()
    note(text)
    want = oracle.evaluate(oracle.parse(plain(text)), group.arrays)
    with every_result_large() if large else contextlib.nullcontext():
        alignment = ALIGNMENT if large else 1
        got = run(outlined(text, kind_of(text)), group.memory, detect(target), alignment=alignment)
    for g, w, value in zip(got, want, group.outputs, strict=True):
        if value.exact:
            np.testing.assert_array_equal(g, w)
        else:
            agree(g, w, value.elem, 1e-4)
