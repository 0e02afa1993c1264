"""Neutral elements, known selects and doubled ops; above all what must stay."""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.passes.simplify import simplify
from tests.passes.checks import apply, ops

SPECIAL = np.array([1.5, -0.0, 0.0, np.inf, -np.inf, np.nan], np.float32)


def unary(body: str, dtype: str = "f32") -> str:
    """A module that returns %r, computed by `body` from %x; T is the tensor type."""
    text = f"func.func @main(%x: T) -> T {{\n{body}\n return %r : T\n}}"
    return text.replace("T", f"tensor<6x{dtype}>")


def with_constant(op: str, number: str, *, left: bool = False, dtype: str = "f32") -> str:
    operands = "%c, %x" if left else "%x, %c"
    return unary(
        f" %c = stablehlo.constant dense<{number}> : T\n %r = stablehlo.{op} {operands} : T", dtype
    )


@pytest.mark.parametrize(
    ("op", "number", "left"),
    [
        ("add", "-0.0", False),
        ("add", "-0.0", True),
        ("subtract", "0.0", False),
        ("multiply", "1.0", False),
        ("multiply", "1.0", True),
        ("divide", "1.0", False),
        ("power", "1.0", False),
    ],
)
def test_neutral_float_constants_go(op: str, number: str, left: bool) -> None:
    assert ops(apply(with_constant(op, number, left=left), simplify, inputs=[SPECIAL])) == []


@pytest.mark.parametrize(
    ("op", "number", "left"),
    [
        ("add", "0.0", False),
        ("add", "0.0", True),
        ("subtract", "-0.0", False),
        ("subtract", "0.0", True),
        ("multiply", "0.0", False),
        ("multiply", "-1.0", False),
        ("divide", "1.0", True),
        ("divide", "3.0", False),
        ("maximum", "0xFF800000", False),
        ("power", "0.5", False),
    ],
)
def test_what_changes_nan_inf_or_signed_zero_stays(op: str, number: str, left: bool) -> None:
    assert ops(apply(with_constant(op, number, left=left), simplify, inputs=[SPECIAL])) == [op]


@pytest.mark.parametrize(
    ("op", "number"),
    [("add", "0"), ("subtract", "0"), ("multiply", "1"), ("or", "0"), ("xor", "0"), ("and", "-1")],
)
def test_neutral_integer_constants_go(op: str, number: str) -> None:
    assert ops(apply(with_constant(op, number, dtype="i32"), simplify)) == []


@pytest.mark.parametrize(("op", "number", "dtype"), [("and", "1", "i32"), ("and", "255", "ui8")])
def test_and_with_other_bits_stays(op: str, number: str, dtype: str) -> None:
    assert ops(apply(with_constant(op, number, dtype=dtype), simplify)) == [op]


def test_bool_and_true_goes_and_or_true_stays() -> None:
    assert ops(apply(with_constant("and", "true", dtype="i1"), simplify)) == []
    assert ops(apply(with_constant("or", "true", dtype="i1"), simplify)) == ["or"]


@pytest.mark.parametrize(("number", "factor"), [("8.0", "1.250000e-01"), ("-0.5", "-2.0")])
def test_division_by_a_power_of_two_is_a_product(number: str, factor: str) -> None:
    unit = apply(with_constant("divide", number), simplify, inputs=[SPECIAL])
    assert ops(unit) == ["multiply"]
    assert f"dense<{float(factor):e}>".replace("e+0", "e+0") in str(unit.module)


def test_division_by_a_huge_power_of_two_stays() -> None:
    """2^-127 is no normal float32: a product would lose bits."""
    assert ops(apply(with_constant("divide", "0x7F000000"), simplify, inputs=[SPECIAL])) == [
        "divide"
    ]


def test_square_is_a_product() -> None:
    assert ops(apply(with_constant("power", "2.0"), simplify, inputs=[SPECIAL])) == ["multiply"]


@pytest.mark.parametrize("op", ["negate", "not"])
def test_doubled_op_goes(op: str) -> None:
    dtype = "f32" if op == "negate" else "i32"
    body = f" %a = stablehlo.{op} %x : T\n %r = stablehlo.{op} %a : T"
    assert ops(apply(unary(body, dtype), simplify)) == []


def test_select_with_a_known_predicate() -> None:
    text = """
func.func @main(%x: tensor<6xf32>, %y: tensor<6xf32>, %p: tensor<6xi1>)
    -> (tensor<6xf32>, tensor<6xf32>) {
  %t = stablehlo.constant dense<true> : tensor<6xi1>
  %0 = stablehlo.select %t, %x, %y : tensor<6xi1>, tensor<6xf32>
  %1 = stablehlo.select %p, %0, %x : tensor<6xi1>, tensor<6xf32>
  %2 = stablehlo.add %1, %y : tensor<6xf32>
  %3 = stablehlo.select %p, %2, %y : tensor<6xi1>, tensor<6xf32>
  return %2, %3 : tensor<6xf32>, tensor<6xf32>
}"""
    assert ops(apply(text, simplify)) == ["add", "select"]


def test_equal_ops_become_one() -> None:
    body = """
 %a = stablehlo.exponential %x : T
 %b = stablehlo.exponential %x : T
 %r = stablehlo.add %a, %b : T"""
    assert ops(apply(unary(body), simplify)) == ["exponential", "add"]
