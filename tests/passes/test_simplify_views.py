"""Chains of views become one view; a view of a splat is a splat."""

from __future__ import annotations

import pytest

from neuron_compile.passes.simplify import simplify
from tests.passes.checks import apply, ops


def module(source: str, result: str, body: str) -> str:
    return (
        f"func.func @main(%x: tensor<{source}>) -> tensor<{result}> {{\n{body}\n"
        f" return %r : tensor<{result}>\n}}"
    )


CASES = {
    "reshape to itself": (
        "2x3xf32", "2x3xf32",
        " %r = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        [],
    ),
    "reshape of reshape": (
        "2x6xf32", "3x4xf32",
        """ %0 = stablehlo.reshape %x : (tensor<2x6xf32>) -> tensor<12xf32>
 %r = stablehlo.reshape %0 : (tensor<12xf32>) -> tensor<3x4xf32>""",
        ["reshape"],
    ),
    "reshape there and back": (
        "2x6xf32", "2x6xf32",
        """ %0 = stablehlo.reshape %x : (tensor<2x6xf32>) -> tensor<12xf32>
 %r = stablehlo.reshape %0 : (tensor<12xf32>) -> tensor<2x6xf32>""",
        [],
    ),
    "transpose of transpose": (
        "2x3x4xf32", "2x3x4xf32",
        """ %0 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
 %r = stablehlo.transpose %0, dims = [1, 2, 0] : (tensor<4x2x3xf32>) -> tensor<2x3x4xf32>""",
        [],
    ),
    "transpose of a dim of size 1": (
        "2x1x4xf32", "1x2x4xf32",
        " %r = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<2x1x4xf32>) -> tensor<1x2x4xf32>",
        ["reshape"],
    ),
    "broadcast to itself": (
        "2x3xf32", "2x3xf32",
        " %r = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        [],
    ),
    "broadcast that only adds a one": (
        "2x3xf32", "2x1x3xf32",
        """ %r = stablehlo.broadcast_in_dim %x, dims = [0, 2]
    : (tensor<2x3xf32>) -> tensor<2x1x3xf32>""",
        ["reshape"],
    ),
    "keepdim, then broadcast": (
        "2xf32", "2x3xf32",
        """ %0 = stablehlo.reshape %x : (tensor<2xf32>) -> tensor<2x1xf32>
 %r = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x3xf32>""",
        ["broadcast_in_dim"],
    ),
    "broadcast of broadcast": (
        "3xf32", "4x2x3xf32",
        """ %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
 %r = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<2x3xf32>) -> tensor<4x2x3xf32>""",
        ["broadcast_in_dim"],
    ),
    "square transpose stays": (
        "3x3xf32", "3x3xf32",
        " %r = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>",
        ["transpose"],
    ),
    "broadcast in other order stays": (
        "3x3xf32", "3x3xf32",
        " %r = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>",
        ["broadcast_in_dim"],
    ),
    "reshape that mixes dims under a broadcast stays": (
        "2x3xf32", "4x3x2xf32",
        """ %0 = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
 %r = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<3x2xf32>) -> tensor<4x3x2xf32>""",
        ["reshape", "broadcast_in_dim"],
    ),
    "full slice": (
        "2x3xf32", "2x3xf32",
        " %r = stablehlo.slice %x [0:2, 0:3] : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        [],
    ),
    "partial slice stays": (
        "2x3xf32", "2x2xf32",
        " %r = stablehlo.slice %x [0:2, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>",
        ["slice"],
    ),
    "empty pad": (
        "2x3xf32", "2x3xf32",
        """ %z = stablehlo.constant dense<0.0> : tensor<f32>
 %r = stablehlo.pad %x, %z, low = [0, 0], high = [0, 0], interior = [0, 0]
    : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>""",
        [],
    ),
    "pad down by as much as up stays": (
        "2x3xf32", "2x3xf32",
        """ %z = stablehlo.constant dense<0.0> : tensor<f32>
 %r = stablehlo.pad %x, %z, low = [0, 1], high = [0, -1], interior = [0, 0]
    : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>""",
        ["pad"],
    ),
    "concatenation of one": (
        "2x3xf32", "2x3xf32",
        " %r = stablehlo.concatenate %x, dim = 0 : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        [],
    ),
    "reverse of a dim of size 1": (
        "2x1xf32", "2x1xf32",
        " %r = stablehlo.reverse %x, dims = [1] : tensor<2x1xf32>",
        [],
    ),
    "reverse stays": (
        "2x3xf32", "2x3xf32",
        " %r = stablehlo.reverse %x, dims = [1] : tensor<2x3xf32>",
        ["reverse"],
    ),
    "spread splat": (
        "2x3xf32", "2x3xf32",
        """ %c = stablehlo.constant dense<2.0> : tensor<f32>
 %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<3x2xf32>
 %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>
 %r = stablehlo.add %x, %1 : tensor<2x3xf32>""",
        ["add"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_view(name: str) -> None:
    source, result, body, expected = CASES[name]
    assert ops(apply(module(source, result, body), simplify)) == expected
