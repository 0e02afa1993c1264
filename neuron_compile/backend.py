"""The backend that `torch.compile(model, backend="neuron")` calls: Dynamo's graph in, a callable
out.

In: an FX graph with example inputs, `mode` and `options`. Out: a callable with the graph's
signature. Invariants: neither the graph nor the options are written to; what cannot be compiled
raises, nothing runs in eager unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from neuron_compile import compiler, counters, environment, graph_notes, shim
from neuron_compile.absolute import bakes_offsets
from neuron_compile.aliasing import AliasGuard
from neuron_compile.autograd import (
    OutputFacts,
    Runner,
    changed_inputs,
    compile_for_arguments,
    compile_with_aot,
)
from neuron_compile.cache.notes import InputNote
from neuron_compile.cache.warn_once import warn_once
from neuron_compile.call_plan import CallPlan, OutputRule, plan
from neuron_compile.environment import Environment
from neuron_compile.options import Options, resolve
from neuron_compile.prepare import prepare
from neuron_compile.specialize import Argument, specializing_callable, varies


def neuron(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph that Dynamo captured; registered as the Dynamo backend "neuron".

    `options` are those of `neuron_compile.options.Options`; `mode` other than "default" warns and
    goes on. Raises OptionError for an option or environment variable that makes no sense,
    UnsupportedOpError listing every operator that cannot be lowered, LoweringError for tensors that
    are not on the CPU.
    """
    front = _Front(resolve(options, mode), environment.read(), graph_notes.input_notes(graph))
    graph = prepare(graph)
    compiled = compile_with_aot(graph, example_inputs, front.compile_graph)
    changed, offsets = changed_inputs(), bakes_offsets(graph, example_inputs)
    if not changed and not offsets:
        return compiled
    guard = AliasGuard(
        compiled,
        changed,
        lambda args: compile_for_arguments(graph, args, front.compile_graph),
        offsets=offsets,
    )
    return guard.call


_ZEROS = (
    "TORCH_NEURONX_COMPILE_ONLY is set: graphs are compiled and cached, but calls compute nothing "
    "and return zeros; to compute, unset TORCH_NEURONX_COMPILE_ONLY and start the program again "
    "(or call torch._dynamo.reset())"
)


@dataclass(frozen=True, slots=True)
class _Front:
    """The settings of one `torch.compile`, applied to each graph AOTAutograd makes."""

    options: Options
    environment: Environment
    inputs: tuple[InputNote, ...]

    def compile_graph(self, graph: torch.fx.GraphModule, kind: str, facts: OutputFacts) -> Runner:
        """A boxed callable for a functional aten graph, whether its sizes are symbolic or not."""
        graph_notes.annotate(graph, self.inputs)
        if not varies(graph):
            return self._compile_static(graph, kind, facts.rules(()))

        def make(concrete: torch.fx.GraphModule, arguments: Sequence[Argument]) -> Runner:
            return self._compile_static(concrete, kind, facts.rules(arguments))

        return specializing_callable(graph, make, facts.changed_views)

    def _compile_static(
        self, graph: torch.fx.GraphModule, kind: str, rules: Sequence[OutputRule]
    ) -> Runner:
        counters.add("graphs")
        work, call_plan = plan(graph, rules)
        if not (call_plan.outputs or call_plan.checks):
            return shim.make_rearranger(call_plan)
        job = compiler.Job(
            work,
            kind,
            self.options,
            self.environment,
            _facts_for_key(call_plan),
            checks=tuple(check.message for check in call_plan.checks),
            updates=call_plan.updates,
        )
        with _disable_current_modes():  # AOTAutograd's tracing mode would fake our real constants
            if self.environment.compile_only:
                compiler.compile_only(job)
                warn_once("compile-only", _ZEROS)
                return shim.make_unrun(call_plan)
            program = compiler.executable(job)
        host = program.neff.plan
        launches = sum(kernel.launches for kernel in host.kernels)
        return shim.make_callable(
            call_plan, program, counters.calls(launches), uses_random=host.uses_random
        )


def _facts_for_key(call_plan: CallPlan) -> Mapping[str, object]:
    """What shapes the code but is not in the graph's operators: the strides its buffers have."""
    return {"output_strides": tuple(buffer.stride for buffer in call_plan.outputs)}
