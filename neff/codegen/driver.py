"""The native entry `run(void** buffers)`, and the modules that kernels are compiled in.

In: the program, its kernels and the memory plan. Out: the text of each module. `run` calls all
kernels in schedule order, each over torch's OpenMP runtime; `buffers` holds inputs, outputs,
constants and the arena, in this order. It returns 0, or the number of the check that ended it,
counted from 1. Modules only meet when their objects are linked.

A call's table of pointers begins behind the address of the team's counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.memory_plan import MemoryPlan
from neuron_compile.neff.codegen.module import Program
from neuron_compile.neff.codegen.team import COUNTER_BYTES, EXTERNALS, team_function
from neuron_compile.neff.target import Target

# A parallel region costs about a microsecond, and a time slice of the system where another process
# holds the core of one of its threads; shorter kernels run on the calling thread.
PARALLEL_NANOSECONDS = 8000.0

_ENTRY_EXTERNALS = """llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func @omp_get_max_threads() -> i32
"""
_PARALLEL_TYPE = "(!llvm.ptr, !llvm.ptr, i32, i32) -> ()"
_MEMSET_TYPE = "<{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()"
# These stand for a buffer number: no buffers of a run, but parts of its stack.
_COUNTERS, _CHECKS = -1, -2
_ON_STACK = {_COUNTERS: "%counters", _CHECKS: "%checks"}
# The type of a pointer's address in a table of pointers.
_SLOT_OF = "(!llvm.ptr) -> !llvm.ptr, !llvm.ptr"


def kernel_module(
    kernels: Sequence[Kernel], target: Target, entry: str = "", declared: Sequence[Kernel] = ()
) -> str:
    """LLVM-dialect text that defines the kernels, each behind its public `called` function.

    `entry` is the text of `run` where it is part of the module; it calls what is only `declared`
    as well.
    """
    parts = ["module {\n", EXTERNALS, _ENTRY_EXTERNALS if entry else ""]
    parts += sorted({x for k in kernels for x in k.externals})
    parts += [k.text for k in kernels]
    parts += [_whole(k, target) for k in kernels]
    parts += [f"llvm.func @{called(k)}(!llvm.ptr)" for k in declared]
    return "\n".join((*parts, entry, "}\n"))


def is_parallel(kernel: Kernel) -> bool:
    return kernel.tasks > 1 and kernel.work > PARALLEL_NANOSECONDS


def called(kernel: Kernel) -> str:
    """The function of a kernel that `run` calls, or has all threads call."""
    return f"{kernel.name}__{'omp' if is_parallel(kernel) else 'all'}"


def _whole(kernel: Kernel, target: Target) -> str:
    """What every thread of a team runs; or all tasks on the calling thread."""
    attributes = target.llvm_attributes()
    if is_parallel(kernel):
        return team_function(kernel, called(kernel), attributes)
    return f"""llvm.func @{called(kernel)}(%ptrs: !llvm.ptr) attributes {{{attributes}}} {{
%begin = llvm.mlir.constant(0 : i64) : i64
%end = llvm.mlir.constant({kernel.tasks} : i64) : i64
llvm.call @{kernel.name}(%ptrs, %begin, %end) : (!llvm.ptr, i64, i64) -> ()
llvm.return
}}
"""


def entry_text(
    program: Program, kernels: Mapping[str, Sequence[Kernel]], plan: MemoryPlan, target: Target
) -> str:
    """The function `run`: buffers and parts of the arena into a table, then call after call."""
    slots, tables = _tables(program, kernels, plan)
    lines = [
        f"llvm.func @run(%buffers: !llvm.ptr) -> i64 attributes {{{target.llvm_attributes()}}} {{",
        f"%count = llvm.mlir.constant({max(1, len(slots))} : i64) : i64",
        "%zero32 = llvm.mlir.constant(0 : i32) : i32",
        "%zero8 = llvm.mlir.constant(0 : i8) : i8",
        "%zero64 = llvm.mlir.constant(0 : i64) : i64",
        f"%flags = llvm.mlir.constant({max(1, len(program.checks))} : i64) : i64",
        "%checks = llvm.alloca %flags x i8 {alignment = 64 : i64} : (i64) -> !llvm.ptr",
        f"%line = llvm.mlir.constant({COUNTER_BYTES} : i64) : i64",
        "%threads32 = llvm.call @omp_get_max_threads() : () -> i32",
        "%threads = llvm.sext %threads32 : i32 to i64",
        "%length = llvm.mul %threads, %line : i64",
        "%counters = llvm.alloca %length x i8 {alignment = 64 : i64} : (i64) -> !llvm.ptr",
        "%table = llvm.alloca %count x !llvm.ptr {alignment = 64 : i64} : (i64) -> !llvm.ptr",
    ]
    for buffer in sorted({b for b, _ in slots} - set(_ON_STACK)):
        lines.append(f"%g{buffer} = llvm.getelementptr %buffers[{buffer}] : {_SLOT_OF}")
        lines.append(f"%b{buffer} = llvm.load %g{buffer} : !llvm.ptr -> !llvm.ptr")
    for i, (buffer, offset) in enumerate(slots):
        value = _ON_STACK.get(buffer, f"%b{buffer}")
        if offset:
            base, value = value, f"%p{i}"
            lines.append(
                f"{value} = llvm.getelementptr {base}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
            )
        lines.append(f"%s{i} = llvm.getelementptr %table[{i}] : {_SLOT_OF}")
        lines.append(f"llvm.store {value}, %s{i} : !llvm.ptr, !llvm.ptr")
    number = 0
    for call, table in zip(program.calls, tables, strict=True):
        for kernel in kernels[call.group]:
            lines += _launch(kernel, table, number)
            number += 1
        for check, truth in enumerate(program.checks):
            if truth in call.results:
                lines += _end_unless(check)
    return "\n".join((*lines, "llvm.return %zero64 : i64", "}", ""))


def _end_unless(check: int) -> list[str]:
    return [
        f"%at{check} = llvm.getelementptr %checks[{check}] : (!llvm.ptr) -> !llvm.ptr, i8",
        f"%check{check} = llvm.load %at{check} : !llvm.ptr -> i8",
        f'%holds{check} = llvm.icmp "ne" %check{check}, %zero8 : i8',
        f"llvm.cond_br %holds{check}, ^go_on{check}, ^end{check}",
        f"^end{check}:",
        f"%number{check} = llvm.mlir.constant({check + 1} : i64) : i64",
        f"llvm.return %number{check} : i64",
        f"^go_on{check}:",
    ]


def _launch(kernel: Kernel, table: int, number: int) -> list[str]:
    at = f"%t{number}"
    lines = [f"{at} = llvm.getelementptr %table[{table}] : {_SLOT_OF}"]
    call = _call(kernel, at, number)
    if kernel.copies is None:
        return [*lines, *call]
    source, target = (f"%{end}{number}" for end in ("from", "to"))
    for value, slot in zip((source, target), kernel.copies, strict=True):
        lines.append(f"{value}_at = llvm.getelementptr {at}[{slot}] : {_SLOT_OF}")
        lines.append(f"{value} = llvm.load {value}_at : !llvm.ptr -> !llvm.ptr")
    return [
        *lines,
        f'%apart{number} = llvm.icmp "ne" {source}, {target} : !llvm.ptr',
        f"llvm.cond_br %apart{number}, ^copy{number}, ^after{number}",
        f"^copy{number}:",
        *call,
        f"llvm.br ^after{number}",
        f"^after{number}:",
    ]


def _call(kernel: Kernel, at: str, number: int) -> list[str]:
    if not is_parallel(kernel):
        return [f"llvm.call @{called(kernel)}({at}) : (!llvm.ptr) -> ()"]
    return [
        f"%f{number} = llvm.mlir.addressof @{called(kernel)} : !llvm.ptr",
        f'"llvm.intr.memset"(%counters, %zero8, %length) {_MEMSET_TYPE}',
        f"llvm.call @GOMP_parallel(%f{number}, {at}, %zero32, %zero32) : {_PARALLEL_TYPE}",
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
    for i, value in enumerate(program.checks):
        place[value] = (_CHECKS, i)
    slots: list[tuple[int, int]] = []
    tables: list[int] = []
    for call, scratch in zip(program.calls, plan.scratch, strict=True):
        slots.append((_COUNTERS, 0))
        tables.append(len(slots))
        slots += [place[v] for v in (*call.operands, *call.results)]
        slots += [(arena, offset) for offset in scratch]
    return slots, tables
