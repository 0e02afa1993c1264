"""Cumulative reduce_window kernels against the StableHLO interpreter: both directions, any
dimension."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.native import check, outlined, run

IDENTITY = {"add": "0", "multiply": "1", "maximum": "-100", "minimum": "100"}


def scan(
    shape: tuple[int, ...], dim: int, elem: str, op: str = "add", *, backward: bool = False
) -> str:
    """A running fold along `dim`."""
    t = f"tensor<{'x'.join([*map(str, shape), elem])}>"
    window = [n if d == dim else 1 for d, n in enumerate(shape)]
    pad = [0, shape[dim] - 1] if backward else [shape[dim] - 1, 0]
    padding = [pad if d == dim else [0, 0] for d in range(len(shape))]
    init = IDENTITY[op] + (".0" if "f" in elem else "")
    return f"""(%x: {t}) -> ({t}) {{
  %z = stablehlo.constant dense<{init}> : tensor<{elem}>
  %r = "stablehlo.reduce_window"(%x, %z) <{{padding = dense<{padding}> : tensor<{len(shape)}x2xi64>, window_dimensions = array<i64: {", ".join(map(str, window))}>}}> ({{
  ^bb0(%a: tensor<{elem}>, %b: tensor<{elem}>):
    %m = stablehlo.{op} %a, %b : tensor<{elem}>
    stablehlo.return %m : tensor<{elem}>
  }}) : ({t}, tensor<{elem}>) -> {t}
  return %r : {t}
}}
"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((37,), 0),
        ((9,), 0),
        ((64,), 0),
        ((3, 50), 1),
        ((50, 3), 0),
        ((20, 37), 0),
        ((2, 12, 5, 8), 1),
        ((300,), 0),
    ],
)
def test_every_dimension(shape: tuple[int, ...], dim: int, backward: bool, target: str) -> None:
    check(scan(shape, dim, "f32", backward=backward), "scan", target=detect(target))


@pytest.mark.parametrize("elem", ["f64", "i64", "i32", "i8", "ui8"])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_bodies_and_dtypes(op: str, elem: str) -> None:
    text = scan((5, 33), 1, elem, op)
    if elem == "ui8":
        text = text.replace("dense<-100>", "dense<0>")
    check(text, "scan", tolerance=1e-4)


def test_half_precision_is_carried_in_single() -> None:
    """The interpreter would round after every step."""
    x = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float16)
    (got,) = run(outlined(scan((4, 40), 1, "f16"), "scan"), [x])
    want = np.cumsum(x.astype(np.float32), axis=1).astype(np.float16)
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-3, atol=1e-6)
    bits = oracle.to_bf16(x.T.astype(np.float32))
    (got,) = run(outlined(scan((40, 4), 0, "bf16"), "scan"), [bits])
    want = np.cumsum(oracle.from_bf16(bits), axis=0)
    np.testing.assert_allclose(oracle.from_bf16(got), want, rtol=4e-3, atol=1e-6)


RUNNING_ARGMAX = """(%x: tensor<3x37xf32>) -> (tensor<3x37xf32>, tensor<3x37xi32>) {
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %far = stablehlo.constant dense<2147483647> : tensor<i32>
  %i = stablehlo.iota dim = 1 : tensor<3x37xi32>
  %r:2 = "stablehlo.reduce_window"(%x, %i, %ni, %far) <{padding = dense<[[0, 0], [36, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 37>}> ({
  ^bb0(%a: tensor<f32>, %ia: tensor<i32>, %b: tensor<f32>, %ib: tensor<i32>):
    %g = stablehlo.compare GE, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %g, %b, %a : tensor<i1>, tensor<f32>
    %j = stablehlo.select %g, %ib, %ia : tensor<i1>, tensor<i32>
    stablehlo.return %v, %j : tensor<f32>, tensor<i32>
  }) : (tensor<3x37xf32>, tensor<3x37xi32>, tensor<f32>, tensor<i32>) -> (tensor<3x37xf32>, tensor<3x37xi32>)
  return %r#0, %r#1 : tensor<3x37xf32>, tensor<3x37xi32>
}
"""


def test_two_carried_values() -> None:
    check(RUNNING_ARGMAX, "scan")


def test_a_scan_among_other_operations() -> None:
    """cumsum(softmax-like rows), consumed and used twice."""
    check(
        """(%x: tensor<6x40xf32>) -> (tensor<6x40xf32>, tensor<6xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<6x40xf32>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : (tensor<6x40xf32>, tensor<f32>) -> tensor<6xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<6xf32>) -> tensor<6x40xf32>
  %p = stablehlo.divide %e, %b : tensor<6x40xf32>
  %c = "stablehlo.reduce_window"(%p, %z) <{padding = dense<[[0, 0], [39, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 40>}> ({
  ^bb0(%a: tensor<f32>, %d: tensor<f32>):
    %m = stablehlo.add %a, %d : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<6x40xf32>, tensor<f32>) -> tensor<6x40xf32>
  %o = stablehlo.subtract %c, %p : tensor<6x40xf32>
  %t = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [1] : (tensor<6x40xf32>, tensor<f32>) -> tensor<6xf32>
  return %o, %t : tensor<6x40xf32>, tensor<6xf32>
}
""",
        "loop",
    )
