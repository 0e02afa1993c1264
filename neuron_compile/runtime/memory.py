"""Page protection and scratch memory.

In: addresses and sizes that have been checked. Out: protected pages; anonymous memory for arenas.
Invariant: an arena belongs to one call at a time; the process has as many arenas as calls ever ran
at once, whatever the number of programs.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from neuron_compile.errors import ExecutionError

READ, WRITE, EXECUTE = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def protect(address: int, size: int, access: int) -> None:
    """Set the access of whole pages; raises ExecutionError if the system refuses."""
    if size and _libc.mprotect(address, size, access):
        error = ctypes.get_errno()
        raise ExecutionError(
            "the system refused to change the protection of compiled code",
            why=os.strerror(error),
            remedy="allow executable memory mappings for this process (see SELinux's execmem, or "
            "a `noexec` mount of the cache directory)",
        )


def address_of(buffer: memoryview | mmap.mmap) -> int:
    """Where a buffer, which may be read-only, begins."""
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


class Arena:
    """Anonymous zeroed memory, at least page-aligned; freed when the object goes."""

    __slots__ = ("_mapping", "address", "size")

    def __init__(self, size: int) -> None:
        self._mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # A first touch of huge pages costs a fraction of one of small pages.
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self.address = address_of(self._mapping)
        self.size = size


_free: list[Arena] = []


def take_arena(size: int) -> Arena:
    """An arena of at least `size` bytes (not 0). list.pop and list.append are atomic: no lock."""
    try:
        arena = _free.pop()
    except IndexError:
        return Arena(size)
    return arena if arena.size >= size else Arena(size)


def give_arena(arena: Arena) -> None:
    """Return an arena after the call; a too small one was dropped by `take_arena`."""
    _free.append(arena)
