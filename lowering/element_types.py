"""torch dtypes as MLIR element types, and back.

In: dtype and shape, or an MLIR ranked tensor type. Out: the other one, memoised for one context.
Invariant: torch.uint8 is `ui8`, bool is `i1`, signed integers are signless `i8`..`i64`; complex
dtypes have no type of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from neuron_compile.errors import LoweringError

_ELEMENT: dict[torch.dtype, Callable[[], ir.Type]] = {
    torch.bool: lambda: ir.IntegerType.get_signless(1),
    torch.uint8: lambda: ir.IntegerType.get_unsigned(8),
    torch.uint16: lambda: ir.IntegerType.get_unsigned(16),
    torch.uint32: lambda: ir.IntegerType.get_unsigned(32),
    torch.uint64: lambda: ir.IntegerType.get_unsigned(64),
    torch.int8: lambda: ir.IntegerType.get_signless(8),
    torch.int16: lambda: ir.IntegerType.get_signless(16),
    torch.int32: lambda: ir.IntegerType.get_signless(32),
    torch.int64: lambda: ir.IntegerType.get_signless(64),
    torch.float16: ir.F16Type.get,
    torch.bfloat16: ir.BF16Type.get,
    torch.float32: ir.F32Type.get,
    torch.float64: ir.F64Type.get,
}

# Complex tensors are pairs of real ones, see `pairs`.
SUPPORTED_DTYPES = frozenset({*_ELEMENT, torch.complex64, torch.complex128})

Shape = tuple[int, ...]


class TypeTable:
    """MLIR types of one context, made once each; must be used inside that context."""

    __slots__ = ("_described", "_elements", "_tensors")

    def __init__(self) -> None:
        self._elements: dict[torch.dtype, ir.Type] = {}
        self._tensors: dict[tuple[Shape, torch.dtype], ir.RankedTensorType] = {}
        self._described: dict[ir.Type, tuple[Shape, torch.dtype]] = {}

    def element(self, dtype: torch.dtype) -> ir.Type:
        """The element type of a dtype; LoweringError for a dtype StableHLO has no type for."""
        known = self._elements.get(dtype)
        if known is None:
            make = _ELEMENT.get(dtype)
            if make is None:
                raise LoweringError(
                    f"dtype {dtype} has no StableHLO element type here",
                    remedy="convert the tensor to another dtype first",
                )
            known = self._elements[dtype] = make()
        return known

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> ir.RankedTensorType:
        """The ranked tensor type of a static shape."""
        key = (tuple(shape), dtype)
        known = self._tensors.get(key)
        if known is None:
            known = ir.RankedTensorType.get(key[0], self.element(dtype))
            self._tensors[key] = known
            self._described[known] = key
        return known

    def describe(self, type_: ir.Type) -> tuple[Shape, torch.dtype]:
        """(shape, dtype) of a ranked tensor type."""
        known = self._described.get(type_)
        if known is None:
            ranked = ir.RankedTensorType(type_)
            element = ranked.element_type
            dtype = next((d for d, make in _ELEMENT.items() if make() == element), None)
            if dtype is None:
                raise LoweringError(f"element type {element} has no torch dtype")
            known = self._described[type_] = (tuple(ranked.shape), dtype)
        return known
