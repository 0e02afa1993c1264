"""What is compiled of a graph, and how one call of it is put together: decided once, before
lowering.

In: an AOTAutograd graph with static FakeTensors, and a rule per output. Out: the graph to compile
(tensors in, unique computed tensors out) and a `CallPlan`. Invariant: the given graph is not
changed; what the plan returns has the dtype, shape, strides and aliasing that the graph promises.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from neuron_compile.effects import Check, take_demands, take_effects
from neuron_compile.errors import LoweringError
from neuron_compile.neff.schema import row_major
from neuron_compile.placement import require_cpu
from neuron_compile.views import (
    Layout,
    base_of,
    is_dense,
    layout_on,
    overlaps_itself,
    same_memory_order,
)


@dataclass(frozen=True, slots=True)
class OutputRule:
    """What AOTAutograd expects of one output, beyond its value.

    `stride`: eager's strides, where a decomposition may have lost them (None: the graph's own).
    `alone`: no other output may share its memory.
    `own_memory`: it must not share memory with an input. `no_view`: it must not count as a view,
    because autograd forbids to change views that a custom function returns. `changes`: the position
    of the argument whose new value it is, which will be written there.
    """

    stride: tuple[int, ...] | None = None
    own_memory: bool = False
    no_view: bool = False
    alone: bool = False
    changes: int | None = None


class Source(enum.IntEnum):
    """Where one returned value comes from."""

    GIVEN = 0  # a constant: None, a number
    ARGUMENT = 1  # the argument itself
    OUTPUT = 2  # a computed tensor itself
    ARGUMENT_VIEW = 3
    OUTPUT_VIEW = 4
    OUTPUT_ALIAS = 5  # shares memory with a computed tensor, but is no view of it


_FROM_ARGUMENTS = (Source.ARGUMENT, Source.ARGUMENT_VIEW)


@dataclass(frozen=True, slots=True)
class Returned:
    """One returned value: `index` counts arguments or computed outputs, `layout` is that of a
    view.
    """

    source: Source
    index: int = 0
    value: Any = None
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor the executable reads or writes: its layout as PyTorch sees it (strides in
    elements).
    """

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallPlan:
    """`arguments[i]` is the position, in the call, of the executable's input i.

    `resolve` lists inputs whose conjugation or negation is still pending and must be carried out
    first. `updates` lists pairs (output, input) of the executable: the output is the input's new
    value and nothing else, so that it may be written there at once if the executable allows it. For
    each of `checks` the graph to compile computes one boolean more, behind its outputs.
    """

    arguments: tuple[int, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    returned: tuple[Returned, ...]
    checks: tuple[Check, ...] = ()
    resolve: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class _Computed:
    """Computed outputs while they are collected: the node, and the layout its buffer gets."""

    nodes: list[torch.fx.Node] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)

    def index_of(self, node: torch.fx.Node, layout: Layout) -> int:
        if node not in self.nodes:
            self.nodes.append(node)
            self.layouts.append(layout)
        return self.nodes.index(node)


def plan(
    graph: torch.fx.GraphModule, rules: Sequence[OutputRule]
) -> tuple[torch.fx.GraphModule, CallPlan]:
    """Split a graph into what is compiled and what each call does around it.

    `rules` has one entry per output of the graph. Raises NeuronCompileError for tensors on another
    device.
    """
    work = torch.fx.GraphModule(graph, _copy(graph))
    require_cpu(work)
    output = work.graph.output_node()
    wanted = list(output.args[0])  # type: ignore[arg-type]
    for position, (value, rule) in enumerate(zip(wanted, rules, strict=True)):
        wanted[position] = _in_own_form(work.graph, output, value, rule)
    owners = _owners(wanted, rules)
    for position, (value, rule) in enumerate(zip(wanted, rules, strict=True)):
        if not (rule.no_view or rule.alone) or not _is_computed(value):
            continue
        if owners.get(base_of(value), value) is not value:
            wanted[position] = _copied(work.graph, output, value, layout_on(value, value))
    computed = _Computed()
    checks = take_effects(work.graph) + take_demands(work.graph)
    placeholders = work.graph.find_nodes(op="placeholder")
    returned = tuple(
        _returned(value, rule, placeholders, computed, owners)
        for value, rule in zip(wanted, rules, strict=True)
    )
    output.args = ((*computed.nodes, *(node for node, _ in checks)),)
    _drop_unused(work.graph)
    inputs = [(i, node) for i, node in enumerate(placeholders) if node.users]
    for node in placeholders:
        if not node.users:
            work.graph.erase_node(node)
    work.recompile()
    whole = CallPlan(
        arguments=tuple(i for i, _ in inputs),
        inputs=tuple(_buffer(node) for _, node in inputs),
        outputs=tuple(
            Buffer(node.meta["val"].dtype, layout.size, layout.stride)
            for node, layout in zip(computed.nodes, computed.layouts, strict=True)
        ),
        returned=returned,
        checks=tuple(check for _, check in checks),
        resolve=tuple(k for k, (_, node) in enumerate(inputs) if _is_pending(node.meta["val"])),
    )
    return work, replace(whole, updates=_updates(whole, rules))


def _updates(plan: CallPlan, rules: Sequence[OutputRule]) -> tuple[tuple[int, int], ...]:
    """The outputs that are new values of inputs and are seen by nobody else.

    None of an input that is returned as well: saved for backward, it has its old value for the
    hooks that pack it, and is written only after them.
    """
    kept = {r.index for r in plan.returned if r.source in _FROM_ARGUMENTS}
    computed = [r.index for r in plan.returned if r.source not in (Source.GIVEN, *_FROM_ARGUMENTS)]
    pairs = []
    for returned, rule in zip(plan.returned, rules, strict=True):
        if rule.changes not in plan.arguments or rule.changes in kept:
            continue
        if returned.source is not Source.OUTPUT:
            continue
        number = plan.arguments.index(rule.changes)
        own_layout = plan.inputs[number] == plan.outputs[returned.index]
        if own_layout and number not in plan.resolve and computed.count(returned.index) == 1:
            pairs.append((returned.index, number))
    return tuple(pairs)


def _copy(graph: torch.fx.GraphModule) -> torch.fx.Graph:
    new = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    result = new.graph_copy(graph.graph, copies)
    new.output(result)
    return new


def _in_own_form(graph: torch.fx.Graph, output: torch.fx.Node, value: Any, rule: OutputRule) -> Any:
    """The output, through a copy where its rule forbids what it is: an input's memory, other
    strides.
    """
    if not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("val"), torch.Tensor):
        return value
    base = base_of(value)
    whole = layout_on(value, value)
    stride = whole.stride if rule.stride is None else rule.stride
    eager = Layout(whole.size, stride)
    lost_strides = not same_memory_order(whole, eager) and not overlaps_itself(eager)
    constant = base.op == "get_attr"
    if not (lost_strides or constant or (rule.own_memory and base.op == "placeholder")):
        return value
    return _copied(graph, output, value, eager)


def _copied(
    graph: torch.fx.Graph, output: torch.fx.Node, value: torch.fx.Node, layout: Layout
) -> torch.fx.Node:
    """A copy of `value` in memory of its own; row-major if the layout overlaps itself."""
    stride = row_major(layout.size) if overlaps_itself(layout) else layout.stride
    with graph.inserting_before(output):
        copy = graph.call_function(torch.ops.aten.clone.default, (value,))
    fake = value.meta["val"]
    with fake.fake_mode:
        layout_only = torch.empty_strided(layout.size, stride, dtype=fake.dtype, device="cpu")
    copy.meta = {**value.meta, "val": layout_only}
    return copy


def _owners(
    values: Sequence[Any], rules: Sequence[OutputRule]
) -> dict[torch.fx.Node, torch.fx.Node]:
    """Base -> the output whose sizes and strides its buffer gets, where several outputs show it.

    An output that must be no view owns the buffer if it covers it, and the others, tensors saved
    for backward, are views of it: then a change of the output is noticed when they are used.
    """
    shown: dict[torch.fx.Node, dict[torch.fx.Node, OutputRule]] = {}
    for value, rule in zip(values, rules, strict=True):
        if _is_computed(value):
            shown.setdefault(base_of(value), {}).setdefault(value, rule)
    owners = {}
    for base, views in shown.items():
        if len(views) > 1:
            whole = layout_on(base, base)
            firm = [v for v, r in views.items() if r.no_view and not r.alone]
            owners[base] = next((v for v in firm if _covers(layout_on(v, base), whole)), base)
    return owners


def _is_computed(value: Any) -> bool:
    return (
        isinstance(value, torch.fx.Node)
        and isinstance(value.meta.get("val"), torch.Tensor)
        and base_of(value).op != "placeholder"
    )


def _returned(
    value: Any,
    rule: OutputRule,
    placeholders: Sequence[torch.fx.Node],
    computed: _Computed,
    owners: dict[torch.fx.Node, torch.fx.Node],
) -> Returned:
    if not isinstance(value, torch.fx.Node):
        return Returned(Source.GIVEN, value=value)
    fake = value.meta.get("val")
    if not isinstance(fake, torch.Tensor):
        return _returned_number(value, fake)
    base = base_of(value)
    if base.op == "placeholder":
        index = list(placeholders).index(base)
        if base is value:
            return Returned(Source.ARGUMENT, index)
        return Returned(Source.ARGUMENT_VIEW, index, layout=layout_on(value, base))
    layout = layout_on(value, base)
    whole = layout_on(base, base)
    owner = owners.get(base, value if _covers(layout, whole) else base)
    if owner is value:
        # The buffer is made with the view's sizes and strides at once: the executable sees only its
        # address.
        size_and_stride = Layout(layout.size, _stride(layout, rule))
        return Returned(Source.OUTPUT, computed.index_of(base, size_and_stride))
    source = Source.OUTPUT_ALIAS if rule.no_view else Source.OUTPUT_VIEW
    index = computed.index_of(base, layout_on(owner, base))
    return Returned(source, index, layout=layout)


def _returned_number(node: torch.fx.Node, value: Any) -> Returned:
    if value is None or isinstance(value, int | float | bool):
        return Returned(Source.GIVEN, value=value)
    raise LoweringError(
        f"output {node.name} of the graph is a {type(value).__name__}",
        why="a compiled graph returns tensors, numbers and None",
        remedy="this is a defect of the backend if PyTorch made the graph; please report it",
    )


def _stride(layout: Layout, rule: OutputRule) -> tuple[int, ...]:
    """Eager's strides where they name the same memory order: those of size-1 dimensions are visible
    too.
    """
    if rule.stride is not None and same_memory_order(layout, Layout(layout.size, rule.stride)):
        return rule.stride
    return layout.stride


def _covers(view: Layout, whole: Layout) -> bool:
    if view == whole:
        return True
    return view.offset == 0 and _count(view) == _count(whole) and is_dense(view) and is_dense(whole)


def _count(layout: Layout) -> int:
    count = 1
    for size in layout.size:
        count *= size
    return count


def _drop_unused(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if node.op != "output" and not node.users and not node.is_impure(impure_random=False):
            graph.erase_node(node)


def _is_pending(fake: torch.Tensor) -> bool:
    return bool(fake.is_conj() or fake.is_neg())


def _buffer(node: torch.fx.Node) -> Buffer:
    fake = node.meta["val"]
    return Buffer(fake.dtype, tuple(fake.shape), fake.stride())
