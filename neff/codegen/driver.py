"""The native entry `run(void** buffers)`.

All kernels in schedule order, each over torch's OpenMP runtime.

In: the program, its kernels and the memory plan. Out: the text of the whole module. `buffers`
holds inputs, outputs, constants and the arena, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.memory_plan import MemoryPlan
from neuron_compile.neff.codegen.module import Program
from neuron_compile.neff.target import Target

# A parallel region costs about a microsecond; shorter kernels run on the calling thread.
PARALLEL_NANOSECONDS = 4000.0

_EXTERNALS = """llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_get_num_threads() -> i32
"""


def module_text(
    program: Program, kernels: Mapping[str, Sequence[Kernel]], plan: MemoryPlan, target: Target
) -> str:
    """LLVM-dialect text that defines `@run` and all kernels."""
    distinct = {k.name: k for group in kernels.values() for k in group}
    parts = ["module {\n", _EXTERNALS]
    parts += sorted({x for k in distinct.values() for x in k.externals})
    parts += [k.text for k in distinct.values()]
    parts += [_parallel_body(k, target) for k in distinct.values() if is_parallel(k)]
    parts += [_run(program, kernels, plan, target), "}\n"]
    return "\n".join(parts)


def is_parallel(kernel: Kernel) -> bool:
    return kernel.tasks > 1 and kernel.work > PARALLEL_NANOSECONDS


def _parallel_body(kernel: Kernel, target: Target) -> str:
    """What every thread runs: its even share of the tasks."""
    return f"""llvm.func internal @{kernel.name}__omp(%ptrs: !llvm.ptr) attributes {{{target.llvm_attributes()}}} {{
%t32 = llvm.call @omp_get_thread_num() : () -> i32
%n32 = llvm.call @omp_get_num_threads() : () -> i32
%t = llvm.sext %t32 : i32 to i64
%n = llvm.sext %n32 : i32 to i64
%tasks = llvm.mlir.constant({kernel.tasks} : i64) : i64
%one = llvm.mlir.constant(1 : i64) : i64
%a = llvm.mul %t, %tasks : i64
%begin = llvm.udiv %a, %n : i64
%next = llvm.add %t, %one : i64
%b = llvm.mul %next, %tasks : i64
%end = llvm.udiv %b, %n : i64
llvm.call @{kernel.name}(%ptrs, %begin, %end) : (!llvm.ptr, i64, i64) -> ()
llvm.return
}}
"""


def _run(
    program: Program, kernels: Mapping[str, Sequence[Kernel]], plan: MemoryPlan, target: Target
) -> str:
    slots, tables = _tables(program, kernels, plan)
    lines = [
        f"llvm.func @run(%buffers: !llvm.ptr) attributes {{{target.llvm_attributes()}}} {{",
        f"%count = llvm.mlir.constant({max(1, len(slots))} : i64) : i64",
        "%zero32 = llvm.mlir.constant(0 : i32) : i32",
        "%zero = llvm.mlir.constant(0 : i64) : i64",
        "%table = llvm.alloca %count x !llvm.ptr {alignment = 64 : i64} : (i64) -> !llvm.ptr",
    ]
    arena = len(program.outputs) + program.first_result
    for buffer in sorted({b for b, _ in slots}):
        lines.append(
            f"%g{buffer} = llvm.getelementptr %buffers[{buffer}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"
        )
        lines.append(f"%b{buffer} = llvm.load %g{buffer} : !llvm.ptr -> !llvm.ptr")
    for i, (buffer, offset) in enumerate(slots):
        value = f"%b{buffer}"
        if buffer == arena and offset:
            value = f"%p{i}"
            lines.append(
                f"{value} = llvm.getelementptr %b{buffer}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
            )
        lines.append(
            f"%s{i} = llvm.getelementptr %table[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"
        )
        lines.append(f"llvm.store {value}, %s{i} : !llvm.ptr, !llvm.ptr")
    number = 0
    for call, table in zip(program.calls, tables, strict=True):
        for kernel in kernels[call.group]:
            lines += _launch(kernel, table, number)
            number += 1
    return "\n".join((*lines, "llvm.return", "}", ""))


def _launch(kernel: Kernel, table: int, number: int) -> list[str]:
    at = f"%t{number}"
    lines = [f"{at} = llvm.getelementptr %table[{table}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"]
    if is_parallel(kernel):
        return [
            *lines,
            f"%f{number} = llvm.mlir.addressof @{kernel.name}__omp : !llvm.ptr",
            f"llvm.call @GOMP_parallel(%f{number}, {at}, %zero32, %zero32) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()",
        ]
    return [
        *lines,
        f"%e{number} = llvm.mlir.constant({kernel.tasks} : i64) : i64",
        f"llvm.call @{kernel.name}({at}, %zero, %e{number}) : (!llvm.ptr, i64, i64) -> ()",
    ]


def _tables(
    program: Program, kernels: Mapping[str, Sequence[Kernel]], plan: MemoryPlan
) -> tuple[list[tuple[int, int]], list[int]]:
    """All kernels' pointers as (buffer number, byte offset), and where each call's table begins."""
    outputs = len(program.outputs)
    arena = program.first_result + outputs
    place: dict[int, tuple[int, int]] = {i: (i, 0) for i in range(program.inputs)}
    for i in range(len(program.constants)):
        place[program.inputs + i] = (program.inputs + outputs + i, 0)
    for i, value in enumerate(program.outputs):
        place[value] = (program.inputs + i, 0)
    for value, offset in plan.values.items():
        place[value] = (arena, offset)
    slots: list[tuple[int, int]] = []
    tables: list[int] = []
    for call, scratch in zip(program.calls, plan.scratch, strict=True):
        tables.append(len(slots))
        slots += [place[v] for v in (*call.operands, *call.results)]
        slots += [(arena, offset) for offset in scratch]
    return slots, tables
