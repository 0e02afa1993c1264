"""Large products: every count of blocks of k, chunks of rows, spans and groups of panels.

NumPy is the oracle: the interpreter would take minutes.
"""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.target import Target, detect, make
from tests.neff.codegen.native import outlined, run
from tests.neff.codegen.test_contract import dot

TARGETS = [detect(), make("x86-64-v3")]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
@pytest.mark.parametrize(
    "size",
    [
        (300, 1000, 80),  # two chunks of rows, one block of k
        (26, 1030, 700),  # two blocks of k, the second one partly empty
        (250, 1100, 900),  # more panels than wait in memory, some columns missing
        (16, 900, 1700),  # several groups of packed panels, the last one not full
    ],
)
def test_every_division_into_blocks(size: tuple[int, int, int], form: str, target: Target) -> None:
    m, k, n = size
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (m, k)).astype(np.float32)  # sums are exact
    b = random.integers(-3, 4, (k, n)).astype(np.float32)
    operands = [
        np.ascontiguousarray(a if form[0] == "n" else a.T),
        np.ascontiguousarray(b if form[1] == "n" else b.T),
    ]
    (result,) = run(outlined(dot(m, k, n, "f32", form), "contract"), operands, target)
    np.testing.assert_array_equal(result, a @ b)
