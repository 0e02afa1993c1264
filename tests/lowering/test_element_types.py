"""Types of MLIR and of torch, both ways."""

from __future__ import annotations

import pytest
import torch
from torch_mlir import ir

from neuron_compile.errors import LoweringError
from neuron_compile.lowering.element_types import SUPPORTED_DTYPES, TypeTable

NAMES = {
    torch.bool: "i1", torch.uint8: "ui8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.uint64: "ui64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.float32: "f32", torch.float64: "f64",
}  # fmt: skip


@pytest.mark.parametrize("dtype", list(NAMES), ids=str)
def test_both_ways(dtype: torch.dtype) -> None:
    with ir.Context(), ir.Location.unknown():
        table = TypeTable()
        made = table.tensor((2, 3), dtype)
        assert str(made) == f"tensor<2x3x{NAMES[dtype]}>"
        assert table.tensor([2, 3], dtype) is made
        assert table.describe(made) == ((2, 3), dtype)
        assert TypeTable().describe(ir.Type.parse(str(made))) == ((2, 3), dtype)


def test_dtypes_without_a_type_are_refused() -> None:
    with ir.Context(), pytest.raises(LoweringError, match="float8_e5m2 has no StableHLO"):
        TypeTable().element(torch.float8_e5m2)


def test_complex_is_supported_without_a_type() -> None:
    assert torch.complex64 in SUPPORTED_DTYPES
    with ir.Context(), pytest.raises(LoweringError, match="complex64"):
        TypeTable().element(torch.complex64)


def test_foreign_types_are_refused() -> None:
    with ir.Context(), pytest.raises(LoweringError, match="i7 has no torch dtype"):
        TypeTable().describe(ir.Type.parse("tensor<2xi7>"))
