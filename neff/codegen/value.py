"""SSA values of the emitted text and their element types.

An element type is its MLIR name; `ptr` stands for an LLVM pointer.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

FLOAT_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
INT_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


@dataclass(frozen=True, slots=True)
class Val:
    """An SSA value: `lanes` is 0 for a scalar; `depth` and `scope` say where it is defined."""

    name: str
    elem: str
    lanes: int
    depth: int
    scope: int

    @property
    def type(self) -> str:
        return type_text(self.elem, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.elem in FLOAT_BITS


@functools.cache
def type_text(elem: str, lanes: int) -> str:
    """MLIR type of a scalar (`lanes` 0) or vector; `ptr` is an LLVM pointer."""
    scalar = "!llvm.ptr" if elem == "ptr" else elem
    return f"vector<{lanes}x{scalar}>" if lanes else scalar


def bits_of(elem: str) -> int:
    return FLOAT_BITS.get(elem) or INT_BITS[elem]


def bytes_of(elem: str) -> int:
    """Bytes of an element in memory: a boolean takes a whole one."""
    return max(1, bits_of(elem) // 8)


@functools.cache
def memory_elem(elem: str) -> str:
    """Element type in memory: a boolean takes one byte."""
    return "i8" if elem == "i1" else elem


def float_literal(elem: str, value: float) -> str:
    """Exact hexadecimal MLIR literal of `value` rounded to `elem` (f32, f64 or f16)."""
    if elem == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if elem == "f16":
        return f"0x{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # struct refuses what rounds to infinity
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return f"0x{struct.unpack('<I', packed)[0]:08X}"
