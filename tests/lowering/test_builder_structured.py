"""Result types that the Builder works out: MLIR's verifier agrees, and no-ops are not emitted."""

from __future__ import annotations

import torch

from tests.lowering.building import function

F = torch.float32


def test_views() -> None:
    with function(((2, 3, 4), F)) as (b, (x,)):
        assert b.shape(b.reshape(x, (6, 4))) == (6, 4)
        assert b.shape(b.transpose(x, (2, 0, 1))) == (4, 2, 3)
        assert b.shape(b.broadcast_in_dim(x, (2, 5, 3, 4), (0, 2, 3))) == (2, 5, 3, 4)
        assert b.shape(b.broadcast_to(x, (7, 2, 3, 4))) == (7, 2, 3, 4)
        assert b.shape(b.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3))) == (2, 2, 2)
        assert b.shape(b.slice_in_dim(x, 2, 1, 1)) == (2, 3, 0)
        zero = b.scalar(0.0, F)
        assert b.shape(b.pad(x, zero, (1, -1, 0), (0, 0, 2), (0, 0, 1))) == (3, 2, 9)
        assert b.shape(b.concatenate([x, x], 1)) == (2, 6, 4)
        assert b.shape(b.reverse(x, [1])) == (2, 3, 4)
        assert b.shape(b.iota((2, 3), 1, torch.int64)) == (2, 3)


def test_what_changes_nothing_is_not_emitted() -> None:
    with function(((2, 3), F)) as (b, (x,)):
        zero = b.scalar(0.0, F)
        same = [
            b.reshape(x, (2, 3)), b.transpose(x, (0, 1)), b.broadcast_to(x, (2, 3)),
            b.slice(x, (0, 0), (2, 3)), b.pad(x, zero, (0, 0), (0, 0)), b.concatenate([x], 0),
            b.reverse(x, []), b.convert(x, F),
        ]  # fmt: skip
        assert all(value == x for value in same)


def test_reductions() -> None:
    with function(((2, 6, 4), F), ((2, 6, 4), torch.int32)) as (b, (x, i)):
        zero, none = b.scalar(0.0, F), b.scalar(0, torch.int32)
        assert b.shape(b.reduce(x, zero, [0, 2], b.add)) == (6,)
        pair = b.reduce_many([x, i], [zero, none], [1], lambda p, q, r, s: [b.add(p, r), s])
        assert [b.dtype(v) for v in pair] == [F, torch.int32]
        (pooled,) = b.reduce_window(
            [x], [zero], b.maximum, window=(1, 3, 2), strides=(1, 2, 1),
            padding=[(0, 0), (1, 0), (0, 0)], window_dilations=(1, 1, 2),
        )  # fmt: skip
        assert b.shape(pooled) == (2, 3, 2)
        grown = b.select_and_scatter(
            x, b.full((2, 3, 4), 1.0, F), zero, lambda p, q: b.compare(p, q, "GE"), b.add,
            window=(1, 2, 1), strides=(1, 2, 1), padding=[(0, 0)] * 3,
        )  # fmt: skip
        assert b.shape(grown) == (2, 6, 4)


def test_contractions() -> None:
    half = torch.bfloat16
    with function(((5, 2, 3), half), ((5, 3, 4), half), ((1, 8, 8, 2), F), ((3, 3, 2, 6), F)) as (
        b,
        (x, y, image, kernel),
    ):
        made = b.dot_general(x, y, batch=([0], [0]), contract=([2], [1]), dtype=F)
        assert (b.shape(made), b.dtype(made)) == ((5, 2, 4), F)
        numbers = b.conv_dimension_numbers("b01f", "01io", "b01f")
        assert str(numbers).endswith("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>")
        b.convolution(
            image, kernel, b.types.tensor((1, 4, 4, 6), F), dimension_numbers=numbers,
            strides=(2, 2), padding=[(1, 0), (0, 1)], lhs_dilation=(1, 1), rhs_dilation=(1, 1),
        )  # fmt: skip


def test_gather_scatter_sort_while() -> None:
    with function(((7, 3), F), ((2, 5), torch.int64)) as (b, (x, index)):
        rows = b.gather(
            x, index, offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0],
            index_vector_dim=2, slice_sizes=[1, 3],
        )  # fmt: skip
        assert b.shape(rows) == (2, 5, 3)
        back = b.scatter(
            x, index, rows, b.add, update_window_dims=[2], inserted_window_dims=[0],
            scatter_dims_to_operand_dims=[0], index_vector_dim=2,
        )  # fmt: skip
        assert "unique_indices = true" not in str(back.owner)  # T079
        ordered = b.sort([x, x], 1, lambda p, q, *_: b.compare(p, q, "LT"))
        assert len(ordered) == 2
        counter = b.scalar(0, torch.int64)
        b.while_(
            [counter],
            lambda n: b.compare(n, b.scalar(3, torch.int64), "LT"),
            lambda n: b.add(n, b.scalar(1, torch.int64)),
        )
        starts = [b.scalar(1, torch.int64), b.scalar(0, torch.int64)]
        assert b.shape(b.dynamic_slice(x, starts, (2, 3))) == (2, 3)
        assert b.shape(b.dynamic_update_slice(x, b.slice_in_dim(x, 0, 0, 2), starts)) == (7, 3)


def test_bits_in_another_width() -> None:
    with function(((2, 4), torch.int16)) as (b, (x,)):
        assert b.shape(b.bitcast_convert(x, torch.bfloat16)) == (2, 4)
        assert b.shape(b.bitcast_convert(x, torch.int8)) == (2, 4, 2)
        assert b.shape(b.bitcast_convert(x, torch.int64)) == (2,)
