"""`runtime/memory.py`: arenas are private while in use, and reused afterwards."""

import mmap

import numpy as np
import pytest

from neuron_compile.errors import ExecutionError
from neuron_compile.runtime import memory
from neuron_compile.runtime.memory import address_of, give_arena, protect, take_arena


@pytest.fixture(autouse=True)
def _no_idle_arenas(monkeypatch):
    monkeypatch.setattr(memory, "_free", [])


def test_two_arenas_in_use_do_not_overlap():
    first, second = take_arena(100_000), take_arena(100_000)
    low, high = sorted((first, second), key=lambda arena: arena.address)
    assert low.address + low.size <= high.address
    assert low.address % 4096 == 0


def test_an_idle_arena_is_used_again_if_it_is_large_enough():
    first = take_arena(100_000)
    give_arena(first)
    assert take_arena(50_000) is first
    give_arena(first)
    larger = take_arena(200_000)
    assert larger.size >= 200_000
    give_arena(larger)
    assert [arena.size for arena in memory._free] == [larger.size]  # the small one is gone


def test_refusal_of_the_system_is_an_execution_error():
    with pytest.raises(ExecutionError, match="protection"):
        protect(1, 4096, memory.READ)  # not the start of a page


def test_address_of_read_only_memory():
    mapping = mmap.mmap(-1, 4096)
    assert address_of(memoryview(mapping).toreadonly()) % mmap.PAGESIZE == 0
    array = np.arange(4)
    assert address_of(memoryview(array)) == array.ctypes.data
