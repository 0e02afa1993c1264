"""Memory for large outputs that comes back when their tensors die.

In: a size in bytes. Out: an `UntypedStorage` that nobody else holds. Invariant: a storage is handed
out again only when the pool's own reference is the last one and the memory behind it is still the
memory it began with.

Why: the kernel clears every fresh page. Writing a fresh 128 MB output took 44 ms against 12 ms into
memory already mapped (2 cores, Zen 4); asking for huge pages brings the fresh case to 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from neuron_compile.errors import ExecutionError
from neuron_compile.runtime.executable import ALIGNMENT
from neuron_compile.runtime.trimmer import IDLE_SECONDS, Trimmer

# Below this the C library's own free lists keep the pages mapped, and a fresh tensor costs less
# than we do.
SMALLEST = 1 << 20
# From here on fresh memory is asked for as huge pages; less would not hold one of 2 MB.
_SMALLEST_HUGE = 4 << 20
_PAGE = 4096
_MADV_HUGEPAGE = 14  # linux/mman.h

# Blocks of one size looked at before a new one is made: the oldest are the likeliest to be free.
_LOOKS = 4
_use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


@dataclass(slots=True)
class _Block:
    storage: torch.UntypedStorage
    nbytes: int
    address: int
    handle: int  # address of the C++ storage, for its use count
    last_used: float

    def is_free(self) -> bool:
        """True if neither a tensor in C++ nor a Python name holds the storage."""
        return (
            _use_count is not None
            and _use_count(self.handle) == 1
            and self.references() == _SOLE_REFERENCES
        )

    def references(self) -> int:
        return sys.getrefcount(self.storage)

    def is_intact(self) -> bool:
        """False after resize_, share_memory_ or a copy-on-write clone: other memory, or other
        readers.
        """
        return self.storage.data_ptr() == self.address and self.storage.nbytes() == self.nbytes


def _references_of_free_block() -> int:
    storage = torch.UntypedStorage(0)
    block = _Block(storage, 0, storage.data_ptr(), storage._cdata, 0.0)
    del storage
    return block.references()


# What getrefcount says of a storage that only its block holds; it differs between Python versions.
_SOLE_REFERENCES = _references_of_free_block()


class Pool:
    """Blocks by exact size. `limit` bounds the bytes of all blocks, in use or not.

    Safe from several threads: whoever pops a block from its queue is the only one to look at it.
    """

    def __init__(self, limit: int, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.limit = limit
        self.idle_seconds = idle_seconds
        self._queues: dict[int, deque[_Block]] = {}
        self._lock = threading.Lock()
        self._trimmer = Trimmer(idle_seconds / 2, self._trim_idle)

    def take(self, nbytes: int) -> torch.UntypedStorage:
        """A storage of exactly `nbytes` bytes, uninitialised, at least 64-byte aligned."""
        queue = self._queues.get(nbytes)
        if queue is not None:
            for _ in range(min(_LOOKS, len(queue))):
                try:
                    block = queue.popleft()
                except IndexError:  # another thread took the last one
                    break
                if not block.is_free():
                    queue.append(block)
                elif block.is_intact():
                    block.last_used = time.monotonic()
                    storage = block.storage  # from here on it is not free, so it may go back
                    queue.append(block)
                    return storage
        return self._new(nbytes)

    def trim(self, *, unused_for: float = 0.0) -> int:
        """Give free blocks back to the operating system; returns how many bytes that were."""
        freed = 0
        deadline = time.monotonic() - unused_for
        with self._lock:
            for nbytes, queue in list(self._queues.items()):
                for _ in range(len(queue)):
                    try:
                        block = queue.popleft()
                    except IndexError:
                        break
                    if block.is_free() and block.last_used <= deadline:
                        freed += nbytes
                    else:
                        if not block.is_free():
                            block.last_used = time.monotonic()
                        queue.append(block)
                if not queue:
                    del self._queues[nbytes]
        return freed

    def held(self) -> int:
        """Bytes of all blocks, in use or not."""
        return sum(nbytes * len(queue) for nbytes, queue in list(self._queues.items()))

    def forget(self) -> None:
        """Drop every block without looking; for a forked child."""
        self._queues = {}
        self._lock = threading.Lock()
        self._trimmer.forget()

    def _new(self, nbytes: int) -> torch.UntypedStorage:
        storage = torch.UntypedStorage(nbytes)
        _demand_alignment(storage.data_ptr())
        if nbytes >= _SMALLEST_HUGE:
            _advise_huge_pages(storage.data_ptr(), nbytes)
        if _use_count is None:
            return storage
        if self.held() + nbytes > self.limit:
            self.trim()
            if self.held() + nbytes > self.limit:
                return storage  # not ours: it goes back to the allocator when its tensors die
        block = _Block(storage, nbytes, storage.data_ptr(), storage._cdata, time.monotonic())
        with self._lock:
            self._queues.setdefault(nbytes, deque()).append(block)
        self._trimmer.wake()
        return storage

    def _trim_idle(self) -> bool:
        self.trim(unused_for=self.idle_seconds)
        return bool(self._queues)


def _demand_alignment(address: int) -> None:
    if address % ALIGNMENT:
        raise ExecutionError(
            f"torch allocated memory at {address:#x}, not at a multiple of {ALIGNMENT} bytes",
            why="compiled code stores large results in whole cache lines",
            remedy="run without the allocator that replaces torch's own for the CPU",
        )


def _advise_huge_pages(address: int, nbytes: int) -> None:
    start = -(-address // _PAGE) * _PAGE
    length = (address + nbytes - start) // _PAGE * _PAGE
    # Advice only: a kernel without huge pages refuses it, and nothing is lost.
    _madvise(start, length, _MADV_HUGEPAGE)


def _find_madvise() -> Callable[[int, int, int], int]:
    if not sys.platform.startswith("linux"):
        return lambda _address, _length, _advice: -1
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    return function


_madvise = _find_madvise()


def default_limit(memory_max: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """A quarter of the machine's memory, or of what the container's control group allows."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        allowed = int(memory_max.read_text())
    except (OSError, ValueError):  # no control group, or "max"
        allowed = installed
    return min(installed, allowed) // 4


POOL = Pool(default_limit())
os.register_at_fork(after_in_child=POOL.forget)
