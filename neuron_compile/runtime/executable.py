"""A NEFF that can be run on raw addresses.

In: a checked `Neff`. Out: `run(addresses)`. Invariant: any number of threads may run one executable
at once; each call has a pointer table and an arena of its own.
"""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from neuron_compile.errors import NeffTargetError
from neuron_compile.neff.schema import ENTRY, Neff
from neuron_compile.runtime.image import LoadedImage
from neuron_compile.runtime.memory import ARENAS, address_of

ALIGNMENT = 64  # bytes, of outputs and constants: large outputs are stored line by line
_Table: TypeAlias = "ctypes.Array[Any]"
_Entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class Executable:
    """A loaded program. `neff` describes its buffers; `run` does not check them.

    Raises NeffTargetError if the code is for another CPU, ExecutionError if it cannot be loaded.
    """

    __slots__ = ("_arguments", "_constants", "_entry", "_image", "_scratch", "_tables", "neff")

    def __init__(self, neff: Neff) -> None:
        _demand_this_cpu(neff)
        self.neff = neff
        self._image = LoadedImage(neff.image)
        self._entry = _Entry(self._image.entry(ENTRY))
        self._constants = [_aligned(data) for data in neff.constant_data]
        self._arguments = len(neff.plan.inputs) + len(neff.plan.outputs)
        self._scratch = neff.plan.scratch_bytes
        # Idle pointer tables, each with its address. list.pop and list.append are atomic.
        self._tables: list[tuple[_Table, int]] = []

    def run(self, addresses: list[int]) -> int:
        """Run once; `addresses` are those of all inputs, then of all outputs, in plan order.

        Returns 0, or the number of the check that is not met, counted from 1; see `HostPlan`.

        Each must be that of a buffer as large and as strided as the plan's tensor says. Outputs
        begin at multiples of `ALIGNMENT`, unless they are an input's memory; inputs are aligned to
        their element type. The GIL is released meanwhile.
        """
        try:
            table, at = self._tables.pop()
        except IndexError:
            table, at = self._new_table()
        table[: self._arguments] = addresses  # refuses a wrong number of them
        if self._scratch:
            arena = ARENAS.take(self._scratch)
            table[-1] = arena.address
            failed: int = self._entry(at)
            ARENAS.give(arena)
        else:
            failed = self._entry(at)
        self._tables.append((table, at))
        return failed

    def _new_table(self) -> tuple[_Table, int]:
        table = (ctypes.c_void_p * (self._arguments + len(self._constants) + 1))()
        for number, constant in enumerate(self._constants):
            table[self._arguments + number] = address_of(constant)
        return table, ctypes.addressof(table)


def _demand_this_cpu(neff: Neff) -> None:
    missing = neff.target.missing_on_host()
    if missing:
        raise NeffTargetError(
            f"the NEFF of {neff.name!r} is for another CPU ({neff.target.name})",
            why=f"this machine lacks {', '.join(missing)}",
            remedy="compile it again on this machine, or compile for a target that all machines "
            "have (target='x86-64-v3')",
        )


def _aligned(data: bytes | memoryview) -> memoryview:
    """The data where they are if aligned (as in a mapped file), else an aligned copy."""
    view = memoryview(data)
    if not view.nbytes or address_of(view) % ALIGNMENT == 0:
        return view
    copy = aligned_bytes(view.nbytes)
    copy[:] = np.frombuffer(view, np.uint8)
    return copy.data


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Uninitialised memory that begins at a multiple of `ALIGNMENT`."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]
