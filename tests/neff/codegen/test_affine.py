"""Comparisons of positions: masks of every direction, offset, sign, and what they must not be."""

from __future__ import annotations

import pytest

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.affine import as_index, comparison_of
from neuron_compile.neff.codegen.index import of
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.target import Target, detect, make
from tests import oracle
from tests.neff.codegen.native import check, outlined

TARGETS = [detect(), make("x86-64-v3")]


def masked(direction: str, offset: int, elem: str = "i64") -> str:
    """x where (column compared with row + offset), else 7."""
    t, i, m = "tensor<37x45xf32>", f"tensor<37x45x{elem}>", "tensor<37x45xi1>"
    return f"""(%x: {t}) -> ({t}, {m}) {{
  %r = stablehlo.iota dim = 0 : {i}
  %c = stablehlo.iota dim = 1 : {i}
  %k = stablehlo.constant dense<{offset}> : {i}
  %s = stablehlo.add %r, %k : {i}
  %m = stablehlo.compare {direction}, %c, %s : ({i}, {i}) -> {m}
  %seven = stablehlo.constant dense<7.0> : {t}
  %o = stablehlo.select %m, %x, %seven : {m}, {t}
  return %o, %m : {t}, {m}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("offset", [0, 3, -5, 100, -100, 1 << 40])
def test_masks_by_position(direction: str, offset: int, target: Target) -> None:
    check(masked(direction, offset), target=target)


@pytest.mark.parametrize("elem", ["i8", "i16", "i32", "ui8", "ui32"])
def test_numbers_that_wrap_are_computed(elem: str) -> None:
    largest = (1 << (int(elem.lstrip("ui")) - (0 if elem[0] == "u" else 1))) - 1
    check(masked("LT", largest, elem))


def root(text: str, number: int) -> Node:
    module = oracle.parse(outlined(text))
    with module.context:
        (group,) = read_program(module).groups.values()
    return group.results[number]


def test_a_comparison_is_one_condition() -> None:
    node = root(masked("LE", 3), 1)
    row, column = (of(domain.variable(n)) for n in node.shape)
    found = comparison_of(node, (row, column))
    assert found is not None
    assert found.condition.index == column - row + -3
    assert not found.holds
    assert found.condition.low == 1


def test_what_may_wrap_is_no_index() -> None:
    node = root(masked("LE", 100, "i8"), 1)
    at = tuple(of(domain.variable(n)) for n in node.shape)
    assert as_index(node.operands[0], at) == at[1]
    assert as_index(node.operands[1], at) is None
    assert comparison_of(node, at) is None
