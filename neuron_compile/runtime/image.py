"""The code of a NEFF, ready to be called.

In: a checked `Neff`. Out: the address of its entry. Invariant: pages are written to (only the GOT)
before anything is called, never afterwards; no page is writable and executable at once.
"""

from __future__ import annotations

import ctypes
import mmap
import struct

from neuron_compile.errors import ExecutionError
from neuron_compile.neff.schema import Image
from neuron_compile.runtime.memory import EXECUTE, READ, WRITE, address_of, protect
from neuron_compile.runtime.symbols import resolve

_SLOT_BYTES = 8


class LoadedImage:
    """An image in executable memory, which lives as long as the object.

    Code that is a page-aligned view of a private mapping (as the reader gives it) runs in place; a
    mapped file's pages are then shared by all processes. Any other is copied to its own memory.
    """

    __slots__ = ("_code", "_exports", "address")

    def __init__(self, image: Image) -> None:
        self._code = _executable_memory(image)
        self._exports = image.exports
        self.address = address_of(self._code)
        start, end = image.got_range
        slots = [(at, resolve(symbol)) for at, symbol in image.got]
        slots += [(at, self.address + addend) for at, addend in image.relocations]
        # The text stays executable meanwhile: another program may run from the same mapping.
        protect(self.address + start, end - start, READ | WRITE)
        for at, value in slots:
            ctypes.memmove(self.address + at, struct.pack("<Q", value), _SLOT_BYTES)
        protect(self.address + start, end - start, READ)

    def entry(self, name: str) -> int:
        """The address of an exported function."""
        return self.address + self._exports[name]


def _executable_memory(image: Image) -> memoryview:
    code = memoryview(image.code)
    if isinstance(code.obj, mmap.mmap) and address_of(code) % mmap.PAGESIZE == 0:
        try:
            return _protected(code, image.text_end)
        except ExecutionError:
            pass  # the file system is mounted noexec: run from a copy
    copy = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    copy[:] = bytes(code)
    return _protected(memoryview(copy), image.text_end)


def _protected(code: memoryview, text_end: int) -> memoryview:
    address = address_of(code)
    protect(address, text_end, READ | EXECUTE)
    protect(address + text_end, len(code) - text_end, READ)
    return code
