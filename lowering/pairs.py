"""Complex tensors as pairs of real ones.

In: a complex tensor's memory, seen as real numbers with a last dimension of 2. Out: its real and
imaginary parts as two values, and back. Invariant: no complex type reaches StableHLO, so neither
passes nor code generation need to know of complex numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


@dataclass(frozen=True, slots=True)
class Pair:
    """A complex tensor: two real values of its shape."""

    real: ir.Value
    imag: ir.Value


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex dtype; a real dtype itself."""
    return _REAL.get(dtype, dtype)


def part(value: Any, which: str) -> Any:
    """One part ("real" or "imag") of every Pair in a value or list; anything else as it is."""
    if isinstance(value, Pair):
        return value.real if which == "real" else value.imag
    if isinstance(value, list):
        return [part(item, which) for item in value]
    return value


def split(b: Builder, memory: ir.Value) -> Pair:
    """The parts of a value whose last dimension holds (real, imaginary)."""
    shape = b.shape(memory)[:-1]
    last = len(shape)
    parts = [b.reshape(b.slice_in_dim(memory, last, i, i + 1), shape) for i in (0, 1)]
    return Pair(*parts)


def join(b: Builder, pair: Pair) -> ir.Value:
    """The value whose last dimension holds (real, imaginary)."""
    shape = (*b.shape(pair.real), 1)
    return b.concatenate([b.reshape(v, shape) for v in (pair.real, pair.imag)], len(shape) - 1)
