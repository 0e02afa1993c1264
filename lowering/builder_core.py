"""The part of the Builder every group of ops stands on: types, constants, operations, regions.

In: names of ops, operand values, result types. Out: MLIR values in the current insertion point.
Invariant: each op carries the location of the FX node being translated; a constant is made once
per function (never inside a region, where it is made anew).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.element_types import Shape, TypeTable

Scalar = bool | int | float | complex
Body = Callable[..., "ir.Value | Sequence[ir.Value]"]

_BITS = {
    torch.bool: 1,
    torch.uint8: 8,
    torch.int8: 8,
    torch.uint16: 16,
    torch.int16: 16,
    torch.uint32: 32,
    torch.int32: 32,
    torch.uint64: 64,
    torch.int64: 64,
}


def is_integer(dtype: torch.dtype) -> bool:
    """Whether the dtype is an integer type; bool is not."""
    return dtype in _BITS and dtype is not torch.bool


class BuilderCore:
    """State and primitives of a Builder; use `Builder` itself."""

    def __init__(self, context: ir.Context, entry: ir.Block) -> None:
        self.context = context
        self.entry = entry
        self.types = TypeTable()
        self.location = ir.Location.unknown(context)
        self._node: torch.fx.Node | None = None
        self._constants: dict[tuple[object, ...], ir.Value] = {}
        self._depth = 0

    # ---- the node being translated -----------------------------------------------------------

    @property
    def node(self) -> torch.fx.Node:
        """The FX node being translated."""
        if self._node is None:
            raise AssertionError("no node is being translated")
        return self._node

    def enter(self, node: torch.fx.Node, location: ir.Location) -> None:
        """Make `node` the one being translated; following ops carry `location`."""
        self._node = node
        self.location = location

    def result(self, index: int = 0) -> torch.Tensor:
        """The FakeTensor that describes result `index` of the node."""
        value = self.node.meta["val"]
        return value[index] if isinstance(value, (tuple, list)) else value

    def result_type(self, index: int = 0) -> ir.RankedTensorType:
        """The MLIR type result `index` of the node must have; that of a part if it is complex."""
        return self.types.tensor(self.result(index).shape, self.result_dtype(index))

    def result_shape(self, index: int = 0) -> Shape:
        """Shape of result `index` of the node."""
        return tuple(self.result(index).shape)

    def result_dtype(self, index: int = 0) -> torch.dtype:
        """The dtype of result `index` of the node; that of its parts if it is complex."""
        dtype = self.result(index).dtype
        return dtype.to_real() if dtype.is_complex else dtype

    def is_used(self, index: int) -> bool:
        """Whether anybody takes result `index` of a node with several results."""
        return any(user.args[1] == index for user in self.node.users)

    # ---- values ------------------------------------------------------------------------------

    def shape(self, x: ir.Value) -> Shape:
        """Static shape of a value."""
        return self.types.describe(x.type)[0]

    def rank(self, x: ir.Value) -> int:
        """Number of dimensions of a value."""
        return len(self.types.describe(x.type)[0])

    def dtype(self, x: ir.Value) -> torch.dtype:
        """Torch dtype of a value."""
        return self.types.describe(x.type)[1]

    # ---- operations --------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attributes: dict[str, ir.Attribute] | None = None,
        regions: int = 0,
    ) -> ir.Operation:
        """Any operation by its full name, at the insertion point, with the node's location."""
        return ir.Operation.create(
            name,
            results=results,
            operands=operands,
            attributes=attributes,
            regions=regions,
            loc=self.location,
        )

    def op1(
        self,
        name: str,
        operands: Sequence[ir.Value],
        result: ir.Type,
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        """An operation without regions that has one result."""
        return ir.Operation.create(
            name, results=[result], operands=operands, attributes=attributes, loc=self.location
        ).result

    def fill_region(self, region: ir.Region, arguments: Sequence[ir.Type], body: Body) -> None:
        """Give a region one block whose terminator returns what `body(*block_arguments)` made."""
        block = ir.Block.create_at_start(region, list(arguments), [self.location] * len(arguments))
        self._depth += 1
        with ir.InsertionPoint(block):
            made = body(*block.arguments)
            results = [made] if isinstance(made, ir.Value) else list(made)
            self.op("stablehlo.return", results, [])
        self._depth -= 1

    # ---- attributes --------------------------------------------------------------------------

    def i64(self, value: int) -> ir.Attribute:
        """A 64-bit integer attribute."""
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)

    def i64s(self, values: Sequence[int]) -> ir.Attribute:
        """A dense array of 64-bit integers."""
        return ir.DenseI64ArrayAttr.get(list(values))

    def bools(self, values: Sequence[bool]) -> ir.Attribute:
        """A dense array of booleans."""
        return ir.DenseBoolArrayAttr.get([bool(v) for v in values])

    def boolean(self, value: bool) -> ir.Attribute:
        """A boolean attribute."""
        return ir.BoolAttr.get(value)

    def pairs(self, values: Sequence[tuple[int, int]]) -> ir.Attribute:
        """A dense `tensor<Nx2xi64>` attribute: paddings (low, high)."""
        array = np.asarray(values, dtype=np.int64).reshape(len(values), 2)
        return ir.DenseElementsAttr.get(array)

    # ---- constants ---------------------------------------------------------------------------

    def full(self, shape: Sequence[int], value: Scalar, dtype: torch.dtype) -> ir.Value:
        """A constant of one value. As eager's fill: integers wrap, floats lose their fraction."""
        type_ = self.types.tensor(shape, dtype)
        # repr tells -0.0 from 0.0 and keeps nan equal to itself; True and 1 differ harmlessly.
        key = (type_, repr(value))
        known = self._constants.get(key)
        if known is not None and self._depth == 0:
            return known
        splat = self._splat(type_, value, dtype)
        made = self.op1("stablehlo.constant", [], type_, {"value": splat})
        if self._depth == 0:
            self._constants[key] = made
        return made

    def full_like(self, x: ir.Value, value: Scalar) -> ir.Value:
        """A constant of one value with the type of `x`."""
        shape, dtype = self.types.describe(x.type)
        return self.full(shape, value, dtype)

    def scalar(self, value: Scalar, dtype: torch.dtype) -> ir.Value:
        """A 0-d constant."""
        return self.full((), value, dtype)

    def array(self, values: torch.Tensor) -> ir.Value:
        """A constant with the contents of a real (not fake) tensor."""
        dense = values.detach().resolve_conj().resolve_neg().contiguous().cpu()
        type_ = self.types.tensor(dense.shape, dense.dtype)
        # NumPy has no bfloat16: hand over the bits.
        carrier = dense.view(torch.int16) if dense.dtype is torch.bfloat16 else dense
        attribute = ir.DenseElementsAttr.get(
            np.ascontiguousarray(carrier.numpy()),
            type=self.types.element(dense.dtype),
            shape=list(dense.shape),
        )
        return self.op1("stablehlo.constant", [], type_, {"value": attribute})

    def _splat(self, type_: ir.RankedTensorType, value: Scalar, dtype: torch.dtype) -> ir.Attribute:
        element = self.types.element(dtype)
        assert not isinstance(value, complex)
        if dtype is torch.bool:
            attribute: ir.Attribute = ir.IntegerAttr.get(element, int(bool(value)))
        elif dtype in _BITS:
            attribute = ir.IntegerAttr.get(element, wrap_signed(int(value), _BITS[dtype]))
        else:
            attribute = ir.FloatAttr.get(element, float(value))
        return ir.DenseElementsAttr.get_splat(type_, attribute)


def wrap_signed(value: int, bits: int) -> int:
    """`value` modulo 2**bits, read as a two's complement number."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half
