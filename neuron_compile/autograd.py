"""AOTAutograd: from Dynamo's graph to forward, backward and inference graphs, and what each output
must be.

In: a Dynamo graph and a function that compiles one functional aten graph. Out: a callable for
Dynamo. Invariant: parameters and buffers are arguments; mutated inputs are written back by
AOTAutograd after the compiled code ran, unless that code wrote them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._functorch.config
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import OutputType, ViewAndMutationMeta
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from neuron_compile.call_plan import OutputRule
from neuron_compile.lowering import decomposition_table
from neuron_compile.specialize import Argument, ChangedView, concrete_size, is_dynamic

FORWARD, BACKWARD, INFERENCE = "forward", "backward", "inference"

Runner = Callable[[list[Any]], Sequence[Any]]
# Compiles one graph: (graph, kind, what its outputs must be).
CompileGraph = Callable[[torch.fx.GraphModule, str, "OutputFacts"], Runner]

# Outputs that AOTAutograd makes again from the input they alias: what the graph returns for them is
# not seen.
_REGENERATED = frozenset({OutputType.alias_of_input, OutputType.is_input})
# Outputs that share memory with no input.
_AS_THEY_ARE = frozenset({OutputType.non_alias, OutputType.unsafe_view_alias})

# PyTorch's decomposition computes other strides than its kernel for these (T031).
_STRIDES_OF_FIRST_ARGUMENT = frozenset({torch.addr, "addr"})


def compile_with_aot(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], compile_graph: CompileGraph
) -> Callable[..., Any]:
    """Trace `graph` with AOTAutograd and compile what it makes of it. The given graph is not
    changed.
    """
    eager_strides = [_strides(value) for value in graph.graph.output_node().args[0]]  # type: ignore[union-attr]

    def compiler(kind: str) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Runner]:
        def compile_one(part: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> Runner:
            return compile_graph(part, kind, OutputFacts(part, kind, eager_strides))

        return compile_one

    backend = aot_autograd(
        fw_compiler=compiler(FORWARD),
        bw_compiler=compiler(BACKWARD),
        inference_compiler=compiler(INFERENCE),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decomposition_table(),
    )
    # We never write results into saved tensors, so backward(retain_graph=True) need not be
    # forbidden.
    with torch._functorch.config.patch(donated_buffer=False):
        return backend(graph, example_inputs)


def compile_for_arguments(
    graph: torch.fx.GraphModule, args: Sequence[Any], compile_graph: CompileGraph
) -> Callable[..., Any]:
    """Trace and compile `graph` outside Dynamo, for exactly these arguments and how they
    overlap.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
    with tracing(TracingContext(mode)):
        return compile_with_aot(graph, fakes, compile_graph)


def changed_inputs() -> list[int]:
    """Positions of the inputs that the graph compiled last, in this tracing context, writes to."""
    metadata = _metadata()
    if metadata is None:
        return []
    return [i for i, info in enumerate(metadata.input_info) if info.mutates_data]


class OutputFacts:
    """What is known of a graph's outputs besides their values; see `rules`.

    `changed_views` are the outputs that are made again from an input the graph changes.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        kind: str,
        eager_strides: Sequence[tuple[Any, ...] | None],
    ) -> None:
        self._placeholders = [n.meta.get("val") for n in graph.graph.find_nodes(op="placeholder")]
        count = len(graph.graph.output_node().args[0])  # type: ignore[arg-type]
        self._kind = kind
        self._strides: list[tuple[Any, ...] | None] = [None] * count
        self._types: list[OutputType | None] = [None] * count
        self.changed_views: tuple[ChangedView, ...] = ()
        # Where the new values of mutated inputs are.
        self._mutated = range(0)
        self._changed: tuple[int, ...] = ()
        metadata = _metadata()
        if kind == BACKWARD or metadata is None:
            return
        if not is_dynamic(graph):
            eager_strides = [s if s and _all_int(s) else None for s in eager_strides]
        # A forward graph returns: tokens that keep operators with effects in order, which are its
        # first inputs as well, new values of mutated inputs, the user's outputs, bases of views,
        # saved tensors.
        tokens = len(metadata.tokens)
        end_of_mutated = tokens + metadata.num_mutated_inp_runtime_indices
        self._mutated = range(tokens, end_of_mutated)
        self._changed = tuple(tokens + i for i in metadata.mutated_inp_runtime_indices)
        end = end_of_mutated + len(metadata.output_info)
        if end <= count and len(eager_strides) == len(metadata.output_info):
            self._strides[end_of_mutated:end] = eager_strides
            self._types[end_of_mutated:end] = [i.output_type for i in metadata.output_info]
            self.changed_views = _changed_views(metadata, end_of_mutated)

    def rules(self, arguments: Sequence[Argument]) -> list[OutputRule]:
        """One rule per output, for these concrete arguments (any, if nothing is symbolic)."""
        return [self._rule(position, arguments) for position in range(len(self._types))]

    def _rule(self, position: int, arguments: Sequence[Argument]) -> OutputRule:
        if position in self._mutated:
            # Written back one after the other: none may still be another input's memory.
            return OutputRule(
                own_memory=True, changes=self._changed[position - self._mutated.start]
            )
        kind = self._types[position]
        if kind is None or kind in _REGENERATED:
            return OutputRule()
        strides = self._strides[position]
        return OutputRule(
            stride=None
            if strides is None
            else tuple(concrete_size(s, self._placeholders, arguments) for s in strides),
            own_memory=kind in _AS_THEY_ARE,
            no_view=self._kind == FORWARD and kind is OutputType.non_alias,
            # AOTAutograd hands out a tensor of another version counter over its memory: a change
            # by the user would not be noticed by a saved tensor that shares it.
            alone=self._kind == FORWARD and kind is OutputType.unsafe_view_alias,
        )


def _changed_views(metadata: ViewAndMutationMeta, first: int) -> tuple[ChangedView, ...]:
    """For the user's outputs, which begin at position `first` of the graph's."""
    tokens = len(metadata.tokens)
    values = {source: tokens + k for k, source in enumerate(metadata.mutated_inp_runtime_indices)}
    return tuple(
        ChangedView(first + k, values[info.base_idx], tokens + info.base_idx)
        for k, info in enumerate(metadata.output_info)
        if info.output_type is OutputType.alias_of_input and info.base_idx in values
    )


def _metadata() -> ViewAndMutationMeta | None:
    context = TracingContext.try_get()
    return context.fw_metadata if context else None


def _strides(value: Any) -> tuple[Any, ...] | None:
    """The strides Dynamo saw, before any decomposition; None for what is no strided tensor."""
    if not isinstance(value, torch.fx.Node):
        return None
    if value.target in _STRIDES_OF_FIRST_ARGUMENT and isinstance(value.args[0], torch.fx.Node):
        first = value.args[0].meta.get("example_value")
        if _is_strided(first) and first.shape == value.meta["example_value"].shape:
            return tuple(first.stride())
    fake = value.meta.get("example_value")
    return tuple(fake.stride()) if _is_strided(fake) else None


def _all_int(numbers: Sequence[Any]) -> bool:
    return all(isinstance(number, int) for number in numbers)


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
