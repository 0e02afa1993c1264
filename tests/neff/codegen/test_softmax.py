"""What the values inside a softmax are known to be, and what follows for the code."""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.softmax import is_below_maximum, is_share
from neuron_compile.neff.target import Target, detect, make
from tests import oracle
from tests.neff.codegen.native import check, outlined, run

TARGETS = [detect(), make("x86-64-v3")]
T, R = "tensor<6x6xf32>", "tensor<6xf32>"


def softmax(
    *,
    low: str = "0xFF800000",
    zero: str = "0.0",
    dims: tuple[int, int] = (1, 1),
    spread: tuple[int, int] = (0, 0),
    divided: str = "%e",
    guard: tuple[str, str, str] | None = None,
    shape: tuple[int, int] = (6, 6),
) -> str:
    """A softmax over dimension 1; every argument is a way to spoil it."""
    t, r = f"tensor<{shape[0]}x{shape[1]}xf32>", f"tensor<{shape[0]}xf32>"
    flags, top, total, guards = r.replace("f32", "i1"), "%m", "%t", ("", "")
    if guard is not None:  # (limit, maximum, sum) of rows whose maximum is not above the limit
        top, total = "%mg", "%tg"
        guards = (
            f"""  %ml = stablehlo.constant dense<{guard[0]}> : {r}
  %mz = stablehlo.constant dense<{guard[1]}> : {r}
  %none = stablehlo.compare LE, %m, %ml : ({r}, {r}) -> {flags}
  %mg = stablehlo.select %none, %mz, %m : {flags}, {r}
""",
            f"""  %to = stablehlo.constant dense<{guard[2]}> : {r}
  %tg = stablehlo.select %none, %to, %t : {flags}, {r}
""",
        )
    return f"""(%x: {t}, %y: {t}) -> ({t}) {{
  %l = stablehlo.constant dense<{low}> : tensor<f32>
  %z = stablehlo.constant dense<{zero}> : tensor<f32>
  %m = stablehlo.reduce(%x init: %l) applies stablehlo.maximum across dimensions = [{dims[0]}]
      : ({t}, tensor<f32>) -> {r}
{guards[0]}  %mb = stablehlo.broadcast_in_dim {top}, dims = [{spread[0]}] : ({r}) -> {t}
  %s = stablehlo.subtract %x, %mb : {t}
  %e = stablehlo.exponential %s : {t}
  %f = stablehlo.exponential %y : {t}
  %t = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [{dims[1]}]
      : ({t}, tensor<f32>) -> {r}
{guards[1]}  %tb = stablehlo.broadcast_in_dim {total}, dims = [{spread[1]}] : ({r}) -> {t}
  %o = stablehlo.divide {divided}, %tb : {t}
  return %o : {t}
}}
"""


def root(text: str) -> Node:
    module = oracle.parse(outlined(text))
    with module.context:
        (group,) = read_program(module).groups.values()
    return group.results[0]


@pytest.mark.parametrize("guard", [None, ("0xFF800000", "0.0", "1.0")])
def test_a_softmax_is_known(guard: tuple[str, str, str] | None) -> None:
    quotient = root(softmax(guard=guard))
    assert is_share(quotient)
    assert is_below_maximum(quotient.operands[0].operands[0])


@pytest.mark.parametrize(
    "other",
    [
        {"low": "1.0"},  # the greatest element may lie below it, and the sum below 1
        {"zero": "-1.0"},
        {"dims": (0, 1)},
        {"dims": (1, 0)},
        {"spread": (1, 0)},  # the greatest of another row
        {"spread": (0, 1)},
        {"divided": "%f"},
        {"divided": "%s"},
        {"guard": ("1.0", "0.0", "1.0")},  # a maximum between 0 and 1 is not taken off
        {"guard": ("0xFF800000", "-1.0", "1.0")},
        {"guard": ("0xFF800000", "0.0", "0.5")},
    ],
    ids=str,
)
def test_what_only_looks_like_a_softmax_is_not(other: dict) -> None:
    assert not is_share(root(softmax(**other)))
    check(softmax(**other))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize(
    "value", [-90.0, -100.0, -1e4, -1e9, -3.4e38, -np.inf, np.inf, np.nan], ids=str
)
def test_masked_and_special_scores(value: float, target: Target) -> None:
    x = np.random.default_rng(3).standard_normal((5, 77)).astype(np.float32)
    x[:, ::3] = value
    x[2] = value
    (got,) = run(outlined(softmax(shape=x.shape)), [x, x], target)
    with np.errstate(invalid="ignore"):
        e = np.exp(x.astype(float) - x.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(got, want, 1e-6, 1e-44)


def test_rows_without_any_score() -> None:
    x = np.full((5, 40), -np.inf, np.float32)
    x[1], x[2, 7] = 3.0, 1.0
    text = softmax(guard=("0xFF800000", "0.0", "1.0"), shape=x.shape)
    (got,) = run(outlined(text), [x, x])
    want = np.zeros(x.shape)
    want[1], want[2, 7] = 1 / 40, 1.0
    np.testing.assert_allclose(got, want, 1e-6)


def test_exponentials_of_a_row_are_computed_once() -> None:
    """The divisor is reduced before the dividend is asked for: its loop keeps the row."""
    module = oracle.parse(outlined(softmax(shape=(8, 256))))
    with module.context:
        (group,) = read_program(module).groups.values()
    (kernel,) = generate(group, make("x86-64-v4"))
    assert kernel.text.count("avx512.mask.scalef.ps.512") == 4  # one vector of four registers
