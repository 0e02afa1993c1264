"""`runtime/memory.py`: arenas are private while in use, used again, and not kept for ever."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neuron_compile.errors import ExecutionError
from neuron_compile.runtime import executable, memory
from neuron_compile.runtime.memory import Arena, Arenas, address_of, protect
from tests.runtime.programs import scale
from tests.runtime.waiting import wait_until


@pytest.fixture
def arenas() -> Arenas:
    """Whose periods only end when the test says so."""
    return Arenas(idle_seconds=7200)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def write(arena: Arena) -> None:
    ctypes.memset(arena.address, 1, arena.size)


def test_two_arenas_in_use_do_not_overlap(arenas):
    first, second = arenas.take(100_000), arenas.take(100_000)
    low, high = sorted((first, second), key=lambda arena: arena.address)
    assert low.address + low.size <= high.address
    assert low.address % 4096 == 0


def test_an_idle_arena_is_used_again_if_it_is_large_enough(arenas):
    first = arenas.take(100_000)
    arenas.give(first)
    assert arenas.take(50_000) is first
    arenas.give(first)
    larger = arenas.take(200_000)
    assert larger.size >= 200_000
    arenas.give(larger)
    assert arenas.idle() == larger.size  # the small one is gone


def test_an_arena_in_regular_use_stays(arenas):
    first = arenas.take(100_000)
    for _ in range(5):
        arenas.give(first)
        assert arenas.end_period()
        assert arenas.take(100_000) is first


def test_an_idle_arena_goes_back_to_the_system(arenas):
    before = resident()
    arena = arenas.take(256 << 20)
    write(arena)
    arenas.give(arena)
    del arena
    assert resident() - before > 200 << 20
    assert arenas.end_period()
    assert arenas.end_period()
    assert not arenas.end_period()
    assert resident() - before < 56 << 20


def test_what_one_huge_program_needed_once_goes_although_small_ones_run_on(arenas):
    arenas.give(arenas.take(100 << 20))
    for _ in range(4):
        arenas.give(arenas.take(1 << 20))
        arenas.end_period()
    assert arenas.idle() <= 1 << 20
    arenas.give(arenas.take(1 << 20))
    assert arenas.idle() == 1 << 20


def test_arenas_of_calls_at_once_go_when_calls_come_one_by_one(arenas):
    for arena in [arenas.take(1 << 20) for _ in range(6)]:
        arenas.give(arena)
    for _ in range(4):
        arenas.give(arenas.take(1 << 20))
        arenas.end_period()
    assert arenas.idle() == 1 << 20


def test_an_arena_in_use_is_never_given_back(arenas):
    arena = arenas.take(1 << 20)
    for _ in range(4):
        arenas.end_period()
    write(arena)
    arenas.give(arena)
    assert arenas.take(1 << 20) is arena


def test_idle_arenas_go_by_themselves():
    arenas = Arenas(idle_seconds=0.02)
    arenas.give(arenas.take(1 << 20))
    wait_until(lambda: arenas.idle() == 0)
    arenas.give(arenas.take(1 << 20))  # and again, with another thread
    wait_until(lambda: arenas.idle() == 0)


def test_a_program_called_once_leaves_no_arena_behind(monkeypatch):
    arenas = Arenas(idle_seconds=0.02)
    monkeypatch.setattr(executable, "ARENAS", arenas)
    x, y = np.ones(200_000, np.float32), np.zeros(200_000, np.float32)
    program = executable.Executable(scale(200_000))
    program.run([x.ctypes.data, y.ctypes.data])
    wait_until(lambda: arenas.idle() == 0)
    program.run([x.ctypes.data, y.ctypes.data])
    assert (y == 5).all()


def test_a_forked_child_gives_back_its_arenas():
    code = """
import os, time
from neuron_compile.runtime.memory import ARENAS
ARENAS.give(ARENAS.take(1 << 20))
child = os.fork()
if child == 0:
    ARENAS._trimmer._seconds = 0.01
    ARENAS.give(ARENAS.take(1 << 20))
    deadline = time.monotonic() + 30
    while ARENAS.idle() and time.monotonic() < deadline:
        time.sleep(0.01)
    os._exit(1 if ARENAS.idle() else 0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


def test_refusal_of_the_system_is_an_execution_error():
    with pytest.raises(ExecutionError, match="protection"):
        protect(1, 4096, memory.READ)  # not the start of a page


def test_advice_that_the_system_does_not_know_is_not_an_error(monkeypatch):
    """Kernels without transparent huge pages refuse MADV_HUGEPAGE with EINVAL."""
    unknown = 4242
    with pytest.raises(OSError, match="Invalid argument"):
        mmap.mmap(-1, mmap.PAGESIZE).madvise(unknown)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", unknown, raising=False)
    write(Arena(100_000))


@pytest.mark.parametrize("size", [1 << 48, 1 << 60, 1 << 64], ids=["48", "60", "64"])
def test_memory_that_the_system_does_not_have_is_an_execution_error(arenas, size):
    with pytest.raises(ExecutionError) as caught:
        arenas.take(size)
    assert str(size) in caught.value.what
    assert caught.value.why
    assert "smaller" in caught.value.remedy
    arenas.give(arenas.take(100_000))  # and the next call goes on


def test_address_of_read_only_memory():
    mapping = mmap.mmap(-1, 4096)
    assert address_of(memoryview(mapping).toreadonly()) % mmap.PAGESIZE == 0
    array = np.arange(4)
    assert address_of(memoryview(array)) == array.ctypes.data
