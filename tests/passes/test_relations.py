"""Blocks of dims, through views and chains of views."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_compile.passes.relations import compose, reshape_relation, squeezed_identity


def test_reshape_splits_into_smallest_blocks() -> None:
    assert reshape_relation((2, 3, 4), (6, 4)).blocks == ((0b011, 0b01), (0b100, 0b10))
    assert reshape_relation((6, 4), (2, 3, 4)).blocks == ((0b01, 0b011), (0b10, 0b100))
    assert reshape_relation((2, 6), (3, 4)).blocks == ((0b11, 0b11),)
    assert reshape_relation((4,), (1, 4, 1)).blocks == ((0b1, 0b010),)
    assert reshape_relation((1, 4, 1), (4,)).blocks == ((0b010, 0b1),)
    assert reshape_relation((), (1,)).blocks == ()


def test_an_empty_tensor_has_no_coordinates() -> None:
    assert reshape_relation((0, 3), (3, 0)).opaque


sizes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


@settings(deadline=None)
@given(sizes)
def test_blocks_of_a_reshape_have_equal_element_counts(shape: list[int]) -> None:
    total = 1
    for size in shape:
        total *= size
    flat = reshape_relation(tuple(shape), (total,))
    covered = 0
    for source, result in flat.blocks:
        assert result == 1
        covered |= source
    assert covered == sum(1 << d for d, size in enumerate(shape) if size != 1)


@settings(deadline=None)
@given(sizes)
def test_flattening_and_unflattening_relates_all_dims(shape: list[int]) -> None:
    total = 1
    for size in shape:
        total *= size
    there = reshape_relation(tuple(shape), (total,))
    back = reshape_relation((total,), tuple(shape))
    real = sum(1 << d for d, size in enumerate(shape) if size != 1)
    assert compose(there, back).blocks == (((real, real),) if real else ())


def test_squeezed_identity_skips_ones_and_refuses_other_sizes() -> None:
    assert squeezed_identity((2, 1, 3), (2, 3)).blocks == ((0b001, 0b01), (0b100, 0b10))
    assert squeezed_identity((2, 3), (3, 2)).blocks == ()
