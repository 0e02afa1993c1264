"""Page protection and scratch memory.

In: addresses and sizes that have been checked. Out: protected pages; anonymous memory for arenas.
Invariant: an arena belongs to one call at a time; the process has as many arenas as calls ran at
once a moment ago, whatever the number of programs, and none larger than one of these needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

import numpy as np

from neuron_compile.errors import ExecutionError
from neuron_compile.runtime.trimmer import IDLE_SECONDS, Trimmer

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
    """Anonymous zeroed memory, at least page-aligned; freed when the object goes.

    Raises ExecutionError if the system has no `size` bytes to give.
    """

    __slots__ = ("_mapping", "address", "last_period", "size")

    def __init__(self, size: int) -> None:
        self._mapping = _map(size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # A first touch of huge pages costs a fraction of one of small pages. It is advice: a
            # kernel built without them answers that it knows no such thing.
            with contextlib.suppress(OSError):
                self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self.address = address_of(self._mapping)
        self.size = size
        self.last_period = 0  # in which it was given back


def _map(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:  # OverflowError: more than an address can count
        raise ExecutionError(
            f"no memory for the intermediate results of a call: {size} bytes ({size >> 20} MiB)",
            why=f"the system refused to map them: {error}",
            remedy="run with smaller inputs (a smaller batch), free memory, or raise the limit of "
            "this process or container (`ulimit -v`, vm.overcommit_memory)",
        ) from error


class Arenas:
    """Idle arenas, used again by any program. No lock: list.pop and list.append are atomic.

    Time goes in periods. An arena goes back to the system when it was not used in this period nor
    in the one before, or was larger than all that was asked for in both.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._free: list[Arena] = []
        self._period = 0
        self._largest = 0  # asked for in this period
        self._largest_before = 0
        self._trimmer = Trimmer(idle_seconds / 2, self.end_period)

    def take(self, size: int) -> Arena:
        """An arena of at least `size` bytes (not 0). Raises ExecutionError if it cannot be had."""
        if size > self._largest:
            self._largest = size
        try:
            arena = self._free.pop()
        except IndexError:
            return Arena(size)
        return arena if arena.size >= size else Arena(size)

    def give(self, arena: Arena) -> None:
        """Return an arena after the call; a too small one was dropped by `take`."""
        arena.last_period = self._period
        self._free.append(arena)
        self._trimmer.wake()

    def end_period(self) -> bool:
        """Give back what has been idle, or too large; whether idle arenas are left."""
        needed = max(self._largest, self._largest_before)
        self._largest_before, self._largest = self._largest, 0
        self._period += 1
        for _ in range(len(self._free)):
            try:
                arena = self._free.pop(0)
            except IndexError:  # all others are in use
                break
            if arena.last_period >= self._period - 2 and arena.size <= needed:
                self._free.append(arena)
        return bool(self._free)

    def idle(self) -> int:
        """Bytes of all idle arenas."""
        return sum(arena.size for arena in list(self._free))

    def forget_trimmer(self) -> None:
        """For a forked child."""
        self._trimmer.forget()


ARENAS = Arenas()
os.register_at_fork(after_in_child=ARENAS.forget_trimmer)
