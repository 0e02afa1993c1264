"""Index algebra: simplified divisions are the divisions, at every value of the variables."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.neff.codegen.evaluate import _is_small
from neuron_compile.neff.codegen.index import Index, Var, of, unravel

EXTENTS = st.lists(st.integers(2, 5), min_size=1, max_size=3)
FACTORS = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 24, 40, -1, -4, -6])


@st.composite
def divisions(draw: st.DrawFn) -> tuple[list[Var], Index, int]:
    """Variables, an index of them, and a divisor that often shares factors with it."""
    variables = [Var(f"v{i}", n) for i, n in enumerate(draw(EXTENTS))]
    index = Index(draw(st.integers(-30, 60)))
    for v in variables:
        index = index + of(v) * draw(FACTORS)
    return variables, index, draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 48, 120, 7]))


def values(index: Index, variables: list[Var], at: tuple[int, ...]) -> int:
    fixed = index.substitute({v: Index(i) for v, i in zip(variables, at, strict=True)})
    assert not fixed.terms
    return fixed.constant


@given(divisions())
def test_quotients_and_remainders_are_those_of_the_values(
    case: tuple[list[Var], Index, int],
) -> None:
    variables, index, divisor = case
    quotient, remainder = index // divisor, index % divisor
    for at in product(*(range(v.extent) for v in variables)):
        value = values(index, variables, at)
        assert values(quotient, variables, at) == value // divisor
        assert values(remainder, variables, at) == value % divisor


def test_a_part_smaller_than_a_common_factor_leaves_the_quotient() -> None:
    """Rows of 3072 columns folded into [8, 256, 3072]: no column decides the first dimension."""
    row, column = Var("m", 2048), Var("n", 3072)
    batch, position, inner = unravel(of(row) * 3072 + of(column), (8, 256, 3072))
    assert inner == of(column)
    assert set(batch.variables()) == set(position.variables()) == {row}


def test_what_is_divided_decides_the_width_of_the_division() -> None:
    """A small quotient of a number beyond 32 bits is not computed in 32 bits."""
    row, column = Var("m", 1 << 20), Var("n", 3001)
    small = (of(row) * 3001 + of(column)) // 1_000_003
    assert small.bounds[1] < 1 << 31
    assert not _is_small(small)
    assert _is_small(of(column) // 7)
