"""Who takes part: eager PyTorch, this backend, and TorchInductor where a C++ compiler exists.

In: nothing. Out: name -> how to compile, and how long the backend itself took for the last graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.utils import compilation_time_metrics
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

import neuron_compile
from benchmarks.case import Compile

EAGER, NEURON, INDUCTOR = "eager", "neuron", "inductor"


def missing_inductor() -> str:
    """Why TorchInductor cannot take part, or nothing."""
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "no C++ compiler"
    return ""


def compilers() -> dict[str, Compile]:
    """Every competitor that can run here. TorchInductor has its default settings."""
    found: dict[str, Compile] = {EAGER: lambda function: function, NEURON: _with(NEURON)}
    if not missing_inductor():
        found[INDUCTOR] = _with(INDUCTOR)
    return found


def _with(backend: str) -> Compile:
    def compiled(function: Any) -> Any:
        return torch.compile(function, backend=backend, fullgraph=True)

    return compiled


def reset() -> None:
    """Forget compiled graphs and measured times before the next case."""
    torch._dynamo.reset()
    compilation_time_metrics.clear()
    neuron_compile.reset_stats()


def backend_seconds(name: str) -> float:
    """Time spent in the backend proper since `reset`: from the AOTAutograd graph to a callable.

    For us the stages from key to load; for TorchInductor its `compile_fx_inner`, which covers
    lowering, code generation and the C++ compiler. Dynamo and AOTAutograd are in neither.
    """
    if name == NEURON:
        return sum(neuron_compile.stats()["seconds"].values())
    return sum(compilation_time_metrics.get("compile_fx_inner", []))
