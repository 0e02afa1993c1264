"""An outlined StableHLO module to the bytes of a NEFF: read, generate, plan, compile, link, write.

In: the module after the passes. Out: one NEFF file for `target`. Kernels are compiled on other
threads while the next ones are generated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch_mlir import ir

from neuron_compile.neff.codegen.checks import checks_first
from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.driver import called, entry_text, kernel_module
from neuron_compile.neff.codegen.in_place import shareable, wanted_of_groups
from neuron_compile.neff.codegen.kernel import Kernel as GeneratedKernel
from neuron_compile.neff.codegen.macs import multiply_accumulates
from neuron_compile.neff.codegen.memory_plan import MemoryPlan, plan_memory
from neuron_compile.neff.codegen.module import Program, read_program
from neuron_compile.neff.codegen.program import Tensor
from neuron_compile.neff.compile_object import ObjectCompiler
from neuron_compile.neff.link import link
from neuron_compile.neff.schema import ENTRY, HostPlan, Kernel, Neff, TensorSpec, tensor
from neuron_compile.neff.target import Target
from neuron_compile.neff.writer import write

# A module costs some milliseconds of its own: as much as kernels of about this length.
_MODULE_CHARACTERS = 24_000

DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip


Watch = Callable[[str, str], None]


def _nobody(name: str, text: str) -> None:
    pass


def build(
    module: ir.Module,
    *,
    target: Target,
    name: str,
    provenance: Mapping[str, str],
    portable: bytes,
    uses_random: bool = False,
    checks: Sequence[str] = (),
    updates: Sequence[tuple[int, int]] = (),
    watch: Watch = _nobody,
) -> bytes:
    """Raises CodegenError where a group has no kernel.

    `portable` is stored as it is, for other targets. The last results of the module, each one
    boolean, end the run where they are false; `checks` is what to say then. `updates` are pairs
    (output, input) that the caller would like to be the same memory; the plan says which may be.
    `watch` is told the name and the MLIR text of each kernel as soon as it is generated, and of the
    entry.
    """
    program = checks_first(read_program(module), len(checks))
    wanted = wanted_of_groups(program, updates)
    # One more thread than cores: now and then each waits for the interpreter lock.
    with ObjectCompiler(len(os.sched_getaffinity(0)) + 1) as compiler:
        kernels, plan = _generate(program, wanted, target, compiler, watch)
        image = link(compiler.objects(), [ENTRY])
    neff = Neff(
        name=name,
        target=target,
        plan=replace(
            _host_plan(program, kernels, plan, uses_random),
            in_place=shareable(program, updates, kernels),
            checks=tuple(checks),
        ),
        image=image,
        constant_data=tuple(
            _bytes(c, program.tensors[program.inputs + i]) for i, c in enumerate(program.constants)
        ),
        provenance=provenance,
        portable=portable,
        macs=multiply_accumulates(program),
    )
    return write(neff)


def _generate(
    program: Program,
    wanted: Mapping[str, Collection[tuple[int, int]]],
    target: Target,
    compiler: ObjectCompiler,
    watch: Watch,
) -> tuple[dict[str, list[GeneratedKernel]], MemoryPlan]:
    """Every group's kernels, their modules already with the compiler, and where values lie.

    What shares a module depends on the texts alone, so that equal programs give equal bytes.
    """
    kernels: dict[str, list[GeneratedKernel]] = {}
    waiting: list[GeneratedKernel] = []
    for name, group in program.groups.items():
        kernels[name] = generate(group, target, wanted.get(name, ()))
        waiting += kernels[name]
        for kernel in kernels[name]:
            watch(kernel.name, kernel.text)
        if sum(len(k.text) for k in waiting) > _MODULE_CHARACTERS:
            compiler.add(kernel_module(waiting, target), [called(k) for k in waiting])
            waiting = []
    scratch = [[s for k in kernels[c.group] for s in k.scratch] for c in program.calls]
    plan = plan_memory(program, scratch)
    entry = entry_text(program, kernels, plan, target)
    watch(ENTRY, entry)
    declared = [k for group in kernels.values() for k in group if k not in waiting]
    compiler.add(kernel_module(waiting, target, entry, declared), [ENTRY])
    return kernels, plan


def _host_plan(
    program: Program,
    kernels: Mapping[str, list[GeneratedKernel]],
    plan: MemoryPlan,
    uses_random: bool,
) -> HostPlan:
    calls = [c.group for c in program.calls]
    described = tuple(
        Kernel(k.name, program.groups[g].kind, calls.count(g), program.groups[g].locations)
        for g, made in kernels.items()
        for k in made
    )
    inputs, outputs = (
        program.tensors[: program.inputs],
        [program.tensors[v] for v in program.outputs],
    )
    constants = program.tensors[program.inputs : program.first_result]
    return HostPlan(
        inputs=tuple(_spec(f"input{i}", t) for i, t in enumerate(inputs)),
        outputs=tuple(_spec(f"output{i}", t) for i, t in enumerate(outputs)),
        constants=tuple(_spec(f"constant{i}", t) for i, t in enumerate(constants)),
        scratch_bytes=plan.size,
        uses_random=uses_random,
        kernels=described,
    )


def _spec(name: str, t: Tensor) -> TensorSpec:
    return tensor(name, DTYPES[t.elem], t.shape, t.strides)


def _bytes(array: np.ndarray[Any, Any], t: Tensor) -> bytes:
    """A constant as it lies in memory; bfloat16 was read as float32, whose upper half it is."""
    if t.elem == "bf16":
        return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return np.ascontiguousarray(array).tobytes()
