"""Rows and inner dims are kept apart, and a refused attempt leaves no trace."""

from __future__ import annotations

from neuron_compile.passes.dim_classes import INNER, NEITHER, ROW, DimClasses, bits
from neuron_compile.passes.graph import Graph, Value
from neuron_compile.passes.relations import Relation, identity
from tests import oracle


def values(count: int) -> list[Value]:
    arguments = ", ".join(f"%a{n}: tensor<4x8xf32>" for n in range(count))
    module = oracle.parse(
        f"func.func @main({arguments}) -> tensor<4x8xf32> {{ return %a0 : tensor<4x8xf32> }}"
    )
    return Graph(module).args


def test_colours_spread_over_related_dims() -> None:
    a, b, c = values(3)
    dims = DimClasses()
    for value in (a, b, c):
        dims.add(value)
    reduced = Relation(((0b01, 0b01),), inner=0b10)
    assert dims.attempt([(a, b, identity((4, 8))), (a, c, reduced)]) is not None
    assert dims.colours(b) == [NEITHER, INNER]
    assert dims.colours(c) == [NEITHER, NEITHER]


def test_a_conflict_is_refused_and_undone() -> None:
    a, b = values(2)
    dims = DimClasses()
    dims.add(a, ROW)
    dims.add(b)
    turned = Relation(((0b01, 0b10), (0b10, 0b01)))
    assert dims.attempt([(b, a, Relation((), inner=0b11))]) is not None
    before = (dims.colours(a), dims.colours(b))
    assert dims.attempt([(b, a, turned)]) is None
    assert (dims.colours(a), dims.colours(b)) == before
    assert before == ([ROW, ROW], [INNER, INNER])


def test_undo_takes_everything_back() -> None:
    a, b = values(2)
    dims = DimClasses()
    dims.add(a, ROW)
    dims.add(b)
    undo = dims.attempt([(b, a, identity((4, 8)))])
    assert undo is not None
    assert dims.colours(b) == [ROW, ROW]
    dims.undo(undo)
    assert dims.colours(b) == [NEITHER, NEITHER]
    assert dims.attempt([(b, a, Relation((), inner=0b11))]) is not None


def test_bits() -> None:
    assert bits(0b1011) == [0, 1, 3]
    assert bits(0) == []
