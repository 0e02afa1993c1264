"""Buffers between pages that nobody may touch: what reads or writes past an end stops the test.

In: sizes in bytes. Out: zeroed arrays of bytes that begin behind, or end before, such a page.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from neuron_compile.runtime import executable
from neuron_compile.runtime.memory import READ, WRITE, address_of, protect

PAGE = 4096
ARENA_ALIGNMENT = 64


@dataclass(slots=True)
class Guarded:
    """Makes buffers that touch the forbidden page before (`at_end`: behind) them."""

    at_end: bool
    _mappings: list[tuple[mmap.mmap, int, int]] = field(default_factory=list)

    def buffer(self, nbytes: int, alignment: int = 1) -> np.ndarray:
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        mapping = mmap.mmap(-1, size + 2 * PAGE)
        address = address_of(mapping)
        self._mappings.append((mapping, address, size))
        protect(address, PAGE, 0)
        protect(address + PAGE + size, PAGE, 0)
        start = PAGE + (size - -(-nbytes // alignment) * alignment if self.at_end else 0)
        return np.frombuffer(mapping, np.uint8, nbytes, start)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """The bytes of an array in the order of its strides."""
        memory = self.buffer(array.nbytes)
        memory[:] = np.array(array).ravel(order="K").view(np.uint8)
        return memory

    def release(self) -> None:
        """The buffers are ordinary memory from here on, and go with their last user."""
        for _, address, size in self._mappings:
            protect(address, size + 2 * PAGE, READ | WRITE)


@contextlib.contextmanager
def guarded(*, at_end: bool) -> Iterator[Guarded]:
    """Buffers, and the arenas of programs that run meanwhile."""
    made = Guarded(at_end)

    def take(size: int) -> SimpleNamespace:
        return SimpleNamespace(address=made.buffer(size, ARENA_ALIGNMENT).ctypes.data, size=size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executable, "ARENAS", SimpleNamespace(take=take, give=lambda _: None))
        try:
            yield made
        finally:
            made.release()
