"""StableHLO ops that move, reduce, contract, gather or scatter, as methods.

In: values and Python integers. Out: values; result types are worked out from the operands.
Invariant: bodies are Python callables over 0-d values, so `b.reduce(x, init, dims, b.add)` works.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo

from neuron_compile.lowering.builder_core import Body, BuilderCore
from neuron_compile.lowering.element_types import Shape

Value = ir.Value
Pairs = Sequence[tuple[int, int]]


class StructuredOps(BuilderCore):
    """Everything that is not elementwise."""

    # ---- views -------------------------------------------------------------------------------

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Same elements in row-major order; `x` itself when the shape is already right."""
        old, dtype = self.types.describe(x.type)
        if old == tuple(shape):
            return x
        return self.op1("stablehlo.reshape", [x], self.types.tensor(shape, dtype))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Dimension i of the result is dimension permutation[i] of `x`."""
        shape, dtype = self.types.describe(x.type)
        if list(permutation) == list(range(len(shape))):
            return x
        result = self.types.tensor([shape[d] for d in permutation], dtype)
        return self.op1("stablehlo.transpose", [x], result, {"permutation": self.i64s(permutation)})

    def broadcast_in_dim(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Dimension i of `x` becomes dimension dims[i] of the result; size 1 is repeated."""
        old, dtype = self.types.describe(x.type)
        if old == tuple(shape) and list(dims) == list(range(len(old))):
            return x
        return self.op1(
            "stablehlo.broadcast_in_dim",
            [x],
            self.types.tensor(shape, dtype),
            {"broadcast_dimensions": self.i64s(dims)},
        )

    def broadcast_to(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy broadcasting: trailing dimensions align."""
        lead = len(shape) - self.rank(x)
        return self.broadcast_in_dim(x, shape, range(lead, len(shape)))

    def slice(
        self,
        x: Value,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> Value:
        """x[starts:limits:strides] in every dimension; bounds inside, strides positive."""
        shape, dtype = self.types.describe(x.type)
        steps = [1] * len(shape) if strides is None else list(strides)
        size = [
            max(0, -(-(hi - lo) // step))
            for lo, hi, step in zip(starts, limits, steps, strict=True)
        ]
        if tuple(size) == shape and all(lo == 0 for lo in starts):
            return x
        attributes = {
            "start_indices": self.i64s(starts),
            "limit_indices": self.i64s(limits),
            "strides": self.i64s(steps),
        }
        return self.op1("stablehlo.slice", [x], self.types.tensor(size, dtype), attributes)

    def slice_in_dim(self, x: Value, dim: int, start: int, limit: int, stride: int = 1) -> Value:
        """A slice along one dimension."""
        shape = self.shape(x)
        starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
        starts[dim], limits[dim], strides[dim] = start, limit, stride
        return self.slice(x, starts, limits, strides)

    def pad(
        self,
        x: Value,
        value: Value,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> Value:
        """Add `value` (0-d) around and between elements; negative amounts cut off."""
        shape, dtype = self.types.describe(x.type)
        between = [0] * len(shape) if interior is None else list(interior)
        if not any(low) and not any(high) and not any(between):
            return x
        size = [
            lo + hi + n + max(n - 1, 0) * mid
            for n, lo, hi, mid in zip(shape, low, high, between, strict=True)
        ]
        attributes = {
            "edge_padding_low": self.i64s(low),
            "edge_padding_high": self.i64s(high),
            "interior_padding": self.i64s(between),
        }
        return self.op1("stablehlo.pad", [x, value], self.types.tensor(size, dtype), attributes)

    def concatenate(self, xs: Sequence[Value], dim: int) -> Value:
        """Join along one dimension."""
        if len(xs) == 1:
            return xs[0]
        shape, dtype = self.types.describe(xs[0].type)
        size = list(shape)
        size[dim] = sum(self.shape(x)[dim] for x in xs)
        return self.op1(
            "stablehlo.concatenate",
            list(xs),
            self.types.tensor(size, dtype),
            {"dimension": self.i64(dim)},
        )

    def reverse(self, x: Value, dims: Sequence[int]) -> Value:
        """Flip the given dimensions."""
        if not dims:
            return x
        return self.op1("stablehlo.reverse", [x], x.type, {"dimensions": self.i64s(dims)})

    def iota(self, shape: Sequence[int], dim: int, dtype: torch.dtype) -> Value:
        """The index along `dim`; not for bool."""
        return self.op1(
            "stablehlo.iota", [], self.types.tensor(shape, dtype), {"iota_dimension": self.i64(dim)}
        )

    def dynamic_slice(self, x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
        """A slice at 0-d integer starts; StableHLO clamps the starts so that it fits."""
        return self.op1(
            "stablehlo.dynamic_slice",
            [x, *starts],
            self.types.tensor(sizes, self.dtype(x)),
            {"slice_sizes": self.i64s(sizes)},
        )

    def dynamic_update_slice(self, x: Value, update: Value, starts: Sequence[Value]) -> Value:
        """`x` with `update` written at 0-d integer starts, which StableHLO clamps."""
        return self.op1("stablehlo.dynamic_update_slice", [x, update, *starts], x.type)

    # ---- reductions --------------------------------------------------------------------------

    def reduce(self, x: Value, init: Value, dims: Sequence[int], body: Body) -> Value:
        """Fold one value over `dims` (dropped) from the 0-d `init`; body(a, b) over 0-d values."""
        return self.reduce_many([x], [init], dims, body)[0]

    def reduce_many(
        self, xs: Sequence[Value], inits: Sequence[Value], dims: Sequence[int], body: Body
    ) -> list[Value]:
        """Fold several values together: body(*accumulators, *elements) returns as many."""
        shape = self.shape(xs[0])
        kept = [n for d, n in enumerate(shape) if d not in dims]
        op = self.op(
            "stablehlo.reduce",
            [*xs, *inits],
            [self.types.tensor(kept, self.dtype(x)) for x in xs],
            {"dimensions": self.i64s(sorted(dims))},
            regions=1,
        )
        elements = [init.type for init in inits]
        self.fill_region(op.regions[0], elements * 2, body)
        return list(op.results)

    def reduce_window(
        self,
        xs: Sequence[Value],
        inits: Sequence[Value],
        body: Body,
        *,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Pairs | None = None,
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
    ) -> list[Value]:
        """Fold each window of the operands; padding does not take part (it is `init`)."""
        shape = self.shape(xs[0])
        rank = len(shape)
        step = [1] * rank if strides is None else list(strides)
        pads = [(0, 0)] * rank if padding is None else list(padding)
        base = [1] * rank if base_dilations is None else list(base_dilations)
        spread = [1] * rank if window_dilations is None else list(window_dilations)
        size = []
        for d in range(rank):
            span = (shape[d] - 1) * base[d] + 1 if shape[d] else 0
            reach = (window[d] - 1) * spread[d] + 1
            room = span + sum(pads[d]) - reach
            size.append(room // step[d] + 1 if room >= 0 else 0)
        attributes = {
            "window_dimensions": self.i64s(window),
            "window_strides": self.i64s(step),
            "base_dilations": self.i64s(base),
            "window_dilations": self.i64s(spread),
            "padding": self.pairs(pads),
        }
        op = self.op(
            "stablehlo.reduce_window",
            [*xs, *inits],
            [self.types.tensor(size, self.dtype(x)) for x in xs],
            attributes,
            regions=1,
        )
        self.fill_region(op.regions[0], [init.type for init in inits] * 2, body)
        return list(op.results)

    def select_and_scatter(
        self,
        x: Value,
        source: Value,
        init: Value,
        select: Body,
        scatter: Body,
        *,
        window: Sequence[int],
        strides: Sequence[int],
        padding: Pairs,
    ) -> Value:
        """Per window of `x`, add one element of `source` where `select` chose; from 0-d `init`."""
        attributes = {
            "window_dimensions": self.i64s(window),
            "window_strides": self.i64s(strides),
            "padding": self.pairs(padding),
        }
        op = self.op(
            "stablehlo.select_and_scatter", [x, source, init], [x.type], attributes, regions=2
        )
        self.fill_region(op.regions[0], [self.types.tensor((), self.dtype(x))] * 2, select)
        self.fill_region(op.regions[1], [init.type] * 2, scatter)
        return op.result

    # ---- contractions ------------------------------------------------------------------------

    def dot_general(
        self,
        lhs: Value,
        rhs: Value,
        *,
        contract: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        dtype: torch.dtype | None = None,
    ) -> Value:
        """Sum of products over `contract`; result is batch, lhs rest, rhs rest.

        `dtype` (default: the operands') may be wider, then the sum is kept at that precision.
        """
        left, right = self.shape(lhs), self.shape(rhs)
        size = [left[d] for d in batch[0]]
        size += [n for d, n in enumerate(left) if d not in batch[0] and d not in contract[0]]
        size += [n for d, n in enumerate(right) if d not in batch[1] and d not in contract[1]]
        numbers = _stablehlo.DotDimensionNumbers.get(
            list(batch[0]), list(batch[1]), list(contract[0]), list(contract[1])
        )
        return self.op1(
            "stablehlo.dot_general",
            [lhs, rhs],
            self.types.tensor(size, dtype or self.dtype(lhs)),
            {"dot_dimension_numbers": numbers},
        )

    def convolution(
        self,
        lhs: Value,
        rhs: Value,
        result: ir.RankedTensorType,
        *,
        dimension_numbers: ir.Attribute,
        strides: Sequence[int],
        padding: Pairs,
        lhs_dilation: Sequence[int],
        rhs_dilation: Sequence[int],
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        window_reversal: Sequence[bool] | None = None,
    ) -> Value:
        """A convolution; `dimension_numbers` from `conv_dimension_numbers`."""
        attributes = {
            "dimension_numbers": dimension_numbers,
            "window_strides": self.i64s(strides),
            "padding": self.pairs(padding),
            "lhs_dilation": self.i64s(lhs_dilation),
            "rhs_dilation": self.i64s(rhs_dilation),
            "feature_group_count": self.i64(feature_group_count),
            "batch_group_count": self.i64(batch_group_count),
        }
        if window_reversal is not None:
            attributes["window_reversal"] = self.bools(window_reversal)
        return self.op1("stablehlo.convolution", [lhs, rhs], result, attributes)

    def conv_dimension_numbers(self, lhs: str, rhs: str, out: str) -> ir.Attribute:
        """From strings such as ("bf01", "oi01", "bf01"): digits are spatial dimensions."""
        spatial = [str(i) for i in range(len(lhs) - 2)]
        return _stablehlo.ConvDimensionNumbers.get(
            lhs.index("b"),
            lhs.index("f"),
            [lhs.index(s) for s in spatial],
            rhs.index("i"),
            rhs.index("o"),
            [rhs.index(s) for s in spatial],
            out.index("b"),
            out.index("f"),
            [out.index(s) for s in spatial],
        )

    # ---- gather, scatter, sort ---------------------------------------------------------------

    def gather(
        self,
        x: Value,
        indices: Value,
        *,
        offset_dims: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        index_vector_dim: int,
        slice_sizes: Sequence[int],
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
    ) -> Value:
        """StableHLO gather. Indices out of range are clamped: check before if eager would raise."""
        numbers = _stablehlo.GatherDimensionNumbers.get(
            list(offset_dims),
            list(collapsed_slice_dims),
            list(operand_batching_dims),
            list(start_indices_batching_dims),
            list(start_index_map),
            index_vector_dim,
        )
        batch = [n for d, n in enumerate(self.shape(indices)) if d != index_vector_dim]
        gone = {*collapsed_slice_dims, *operand_batching_dims}
        offsets = iter([n for d, n in enumerate(slice_sizes) if d not in gone])
        rest = iter(batch)
        rank = len(batch) + len(offset_dims)
        size = [next(offsets) if d in offset_dims else next(rest) for d in range(rank)]
        return self.op1(
            "stablehlo.gather",
            [x, indices],
            self.types.tensor(size, self.dtype(x)),
            {"dimension_numbers": numbers, "slice_sizes": self.i64s(slice_sizes)},
        )

    def scatter(
        self,
        x: Value,
        indices: Value,
        updates: Value,
        body: Body,
        *,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int],
        scatter_dims_to_operand_dims: Sequence[int],
        index_vector_dim: int,
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
    ) -> Value:
        """StableHLO scatter; body(old, update). Never claims sorted or unique indices (T079)."""
        numbers = _stablehlo.ScatterDimensionNumbers.get(
            list(update_window_dims),
            list(inserted_window_dims),
            list(input_batching_dims),
            list(scatter_indices_batching_dims),
            list(scatter_dims_to_operand_dims),
            index_vector_dim,
        )
        op = self.op(
            "stablehlo.scatter",
            [x, indices, updates],
            [x.type],
            {"scatter_dimension_numbers": numbers},
            regions=1,
        )
        self.fill_region(op.regions[0], [self.types.tensor((), self.dtype(x))] * 2, body)
        return op.result

    def sort(
        self, xs: Sequence[Value], dim: int, comparator: Body, *, stable: bool = True
    ) -> list[Value]:
        """Sort together; comparator(x0, y0, x1, y1, ...) says whether x comes before y."""
        op = self.op(
            "stablehlo.sort",
            list(xs),
            [x.type for x in xs],
            {"dimension": self.i64(dim), "is_stable": self.boolean(stable)},
            regions=1,
        )
        scalars = [self.types.tensor((), self.dtype(x)) for x in xs for _ in range(2)]
        self.fill_region(op.regions[0], scalars, comparator)
        return list(op.results)

    def while_(self, inits: Sequence[Value], condition: Body, body: Body) -> list[Value]:
        """Repeat body(*values) while condition(*values), a 0-d bool, holds."""
        types = [x.type for x in inits]
        op = self.op("stablehlo.while", list(inits), types, regions=2)
        self.fill_region(op.regions[0], types, condition)
        self.fill_region(op.regions[1], types, body)
        return list(op.results)


def numel(shape: Shape) -> int:
    """Number of elements of a shape."""
    return math.prod(shape)
