"""How the threads of a team share the tasks of a kernel.

In: a kernel. Out: the function that every thread runs. Each thread has an even, contiguous share,
so that successive kernels find their rows in the same core's cache. It takes a grain of tasks at a
time from its own share, and when that is empty from the others' shares: a thread that was held up
(by another process, a slower core, a cold cache) costs the others a grain, not half of the kernel.

A share's progress is a counter of tasks taken, on a cache line of its own. `run` clears the
counters before each kernel and leaves their address in the word before the kernel's pointer table.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.emitter import LINE_BYTES
from neuron_compile.neff.codegen.kernel import Kernel

COUNTER_BYTES = LINE_BYTES  # so that threads do not wait for each other's counting

# What a grain should take at least: taking one costs tens of nanoseconds, and what is left at the
# end of a kernel is less than a grain for each thread.
GRAIN_NANOSECONDS = 20000.0

EXTERNALS = """llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_get_num_threads() -> i32
"""


def grain(kernel: Kernel) -> int:
    """Tasks that are taken at a time: as many as the kernel wants, and not too short a time."""
    long_enough = int(GRAIN_NANOSECONDS * kernel.tasks / kernel.work)
    return max(1, kernel.grain, min(long_enough, kernel.tasks))


def team_function(kernel: Kernel, name: str, attributes: str) -> str:
    """LLVM-dialect text of `name(ptrs)`, which all threads of the team call."""
    return _TEXT.format(
        name=name,
        kernel=kernel.name,
        attributes=attributes,
        tasks=kernel.tasks,
        grain=grain(kernel),
        line=f"!llvm.array<{COUNTER_BYTES} x i8>",
    )


# A counter may count more tasks than there are. Where no share is longer than a grain, nobody looks
# at the others'; one thread alone takes all at once. Counting needs no order: what kernels write is
# seen by all when the parallel region ends.
_TEXT = """llvm.func @{name}(%ptrs: !llvm.ptr) attributes {{{attributes}}} {{
%tasks = llvm.mlir.constant({tasks} : i64) : i64
%wanted = llvm.mlir.constant({grain} : i64) : i64
%zero = llvm.mlir.constant(0 : i64) : i64
%one = llvm.mlir.constant(1 : i64) : i64
%thread32 = llvm.call @omp_get_thread_num() : () -> i32
%threads32 = llvm.call @omp_get_num_threads() : () -> i32
%thread = llvm.sext %thread32 : i32 to i64
%threads = llvm.sext %threads32 : i32 to i64
%slot = llvm.getelementptr %ptrs[-1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
%counters = llvm.load %slot : !llvm.ptr -> !llvm.ptr
%alone = llvm.icmp "eq" %threads, %one : i64
%grain = llvm.select %alone, %tasks, %wanted : i1, i64
%grains = llvm.mul %grain, %threads : i64
%short = llvm.icmp "sle" %tasks, %grains : i64
%visits = llvm.select %short, %one, %threads : i1, i64
llvm.br ^visit(%zero : i64)
^visit(%away: i64):
%left = llvm.icmp "slt" %away, %visits : i64
llvm.cond_br %left, ^share, ^done
^share:
%number = llvm.add %thread, %away : i64
%owner = llvm.urem %number, %threads : i64
%before = llvm.mul %owner, %tasks : i64
%begin = llvm.udiv %before, %threads : i64
%after = llvm.add %before, %tasks : i64
%end = llvm.udiv %after, %threads : i64
%counter = llvm.getelementptr %counters[%owner] : (!llvm.ptr, i64) -> !llvm.ptr, {line}
llvm.br ^take
^take:
%taken = llvm.atomicrmw add %counter, %grain monotonic : !llvm.ptr, i64
%first = llvm.add %begin, %taken : i64
%some = llvm.icmp "slt" %first, %end : i64
llvm.cond_br %some, ^work, ^next
^work:
%following = llvm.add %first, %grain : i64
%last = llvm.intr.smin(%following, %end) : (i64, i64) -> i64
llvm.call @{kernel}(%ptrs, %first, %last) : (!llvm.ptr, i64, i64) -> ()
llvm.br ^take
^next:
%further = llvm.add %away, %one : i64
llvm.br ^visit(%further : i64)
^done:
llvm.return
}}
"""
