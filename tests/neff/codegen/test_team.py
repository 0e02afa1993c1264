"""Threads that share a kernel's tasks: every task once, none left to a thread that is held up."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from neuron_compile.neff.codegen.driver import called, is_parallel, kernel_module
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.team import COUNTER_BYTES, GRAIN_NANOSECONDS, grain
from neuron_compile.neff.compile_object import compile_object
from neuron_compile.neff.link import link
from neuron_compile.neff.target import make
from neuron_compile.runtime import symbols
from neuron_compile.runtime.image import LoadedImage
from tests.neff.codegen.native import run

TARGET = make("x86-64-v3")
MOST_THREADS = 5

# Counts how often each task was run, and all tasks. Task 0 waits, for a while, until the tasks
# counted are `awaited`, and leaves the number it saw last.
_COUNT = """llvm.func internal @count(%ptrs: !llvm.ptr, %begin: i64, %end: i64) {{
  %slot1 = llvm.getelementptr %ptrs[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %runs = llvm.load %ptrs : !llvm.ptr -> !llvm.ptr
  %all = llvm.load %slot1 : !llvm.ptr -> !llvm.ptr
  %seen = llvm.getelementptr %all[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %awaited = llvm.mlir.constant({awaited} : i64) : i64
  %patience = llvm.mlir.constant({patience} : i64) : i64
  scf.for %i = %begin to %end step %one : i64 {{
    %is_first = llvm.icmp "eq" %i, %zero : i64
    scf.if %is_first {{
      %last = scf.while (%n = %zero) : (i64) -> i64 {{
        %now = llvm.load %all atomic monotonic {{alignment = 8 : i64}} : !llvm.ptr -> i64
        llvm.store %now, %seen : i64, !llvm.ptr
        %few = llvm.icmp "slt" %now, %awaited : i64
        %patient = llvm.icmp "slt" %n, %patience : i64
        %wait = llvm.and %few, %patient : i1
        scf.condition(%wait) %n : i64
      }} do {{
      ^bb0(%n: i64):
        %m = llvm.add %n, %one : i64
        scf.yield %m : i64
      }}
    }}
    %own = llvm.getelementptr %runs[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %before = llvm.atomicrmw add %own, %one monotonic : !llvm.ptr, i64
    %total = llvm.atomicrmw add %all, %one monotonic : !llvm.ptr, i64
  }}
  llvm.return
}}
"""
_RUN = """llvm.func @run(%buffers: !llvm.ptr) {{
  %z = llvm.mlir.constant(0 : i32) : i32
  %table = llvm.getelementptr %buffers[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %f = llvm.mlir.addressof @{called} : !llvm.ptr
  llvm.call @GOMP_parallel(%f, %table, %z, %z) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  llvm.return
}}
"""


def counted(kernel: Kernel, threads: int) -> tuple[np.ndarray, int]:
    """How often each task was run by `threads` threads, and what task 0 saw last."""
    assert is_parallel(kernel)
    text = kernel_module([kernel], TARGET, _RUN.format(called=called(kernel)))
    image = LoadedImage(link(compile_object(text, ["run"]), ["run"]))
    counters = np.zeros(COUNTER_BYTES * MOST_THREADS, np.uint8)
    runs, all_tasks = np.zeros(kernel.tasks, np.int64), np.zeros(2, np.int64)
    buffers = (ctypes.c_void_p * 3)(*(x.ctypes.data for x in (counters, runs, all_tasks)))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(image.entry("run"))(ctypes.addressof(buffers))
    finally:
        torch.set_num_threads(before)
    return runs, int(all_tasks[1])


def kernel(tasks: int, least: int, *, awaited: int = 0, patience: int = 0) -> Kernel:
    """Tasks of a grain's time each, of which a thread takes `least` at a time."""
    text = _COUNT.format(awaited=awaited, patience=patience)
    return Kernel("count", text, tasks, tasks * GRAIN_NANOSECONDS, grain=least)


@pytest.mark.parametrize("threads", [1, 2, 3, MOST_THREADS])
@pytest.mark.parametrize("least", [1, 3, 7, 1000])
@pytest.mark.parametrize("tasks", [2, 3, 7, 64, 101])
def test_every_task_runs_once(tasks: int, least: int, threads: int) -> None:
    runs, _ = counted(kernel(tasks, least), threads)
    np.testing.assert_array_equal(runs, 1)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("least", [1, 4])
def test_what_a_waiting_thread_leaves_is_done_by_others(least: int, threads: int) -> None:
    """Task 0 is done after all that its thread has not taken: a fixed share would wait in vain."""
    tasks = 60
    awaited = tasks - least
    runs, seen = counted(kernel(tasks, least, awaited=awaited, patience=1 << 32), threads)
    np.testing.assert_array_equal(runs, 1)
    assert seen == awaited


@pytest.mark.parametrize(
    ("tasks", "work", "least", "wanted"),
    [
        (100, 100 * GRAIN_NANOSECONDS, 1, 1),
        (100, 10 * GRAIN_NANOSECONDS, 1, 10),
        (100, 1000 * GRAIN_NANOSECONDS, 1, 1),
        (100, 10 * GRAIN_NANOSECONDS, 16, 16),
        (100, GRAIN_NANOSECONDS / 4, 1, 100),  # short: no share is ever divided
    ],
)
def test_a_grain_takes_long_enough(tasks: int, work: float, least: int, wanted: int) -> None:
    assert grain(Kernel("k", "", tasks, work, grain=least)) == wanted


T = "tensor<300000xf32>"
TWO_LAUNCHES = f"""
func.func private @cosine(%x: {T}) -> {T} attributes {{neuron.kind = "loop"}} {{
  %y = stablehlo.cosine %x : {T}
  return %y : {T}
}}
func.func private @sine(%x: {T}) -> {T} attributes {{neuron.kind = "loop"}} {{
  %y = stablehlo.sine %x : {T}
  return %y : {T}
}}
func.func @main(%x: {T}) -> ({T}, {T}) {{
  %a = func.call @cosine(%x) : ({T}) -> {T}
  %b = func.call @sine(%a) : ({T}) -> {T}
  return %a, %b : {T}, {T}
}}
"""


@pytest.mark.parametrize("threads", [None, 1, 3], ids=["without libgomp", "one", "three"])
def test_each_launch_begins_with_cleared_counters(
    threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads is None:
        monkeypatch.setattr(symbols, "_openmp", lambda: None)
    symbols.resolve.cache_clear()
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    x = np.linspace(-9, 9, 300000, dtype=np.float32)
    try:
        first, second = run(TWO_LAUNCHES, [x])
    finally:
        torch.set_num_threads(before)
        symbols.resolve.cache_clear()
    np.testing.assert_allclose(first, np.cos(x), atol=1e-6)
    np.testing.assert_allclose(second, np.sin(np.cos(x)), atol=1e-6)
