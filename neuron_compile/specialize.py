"""Symbolic sizes to concrete graphs: one callable per captured graph, one static graph per set of
sizes.

In: an AOTAutograd graph whose placeholders may be SymInts, and the arguments of one call. Out: the
same graph with every size a number, every node's meta a static FakeTensor; inputs that are viewed
at absolute positions are whole storages, and returned views of changed inputs are views of the
inputs. Invariant: the captured graph is not changed and no guard is added to it, so what Dynamo
marked dynamic stays dynamic.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from neuron_compile.absolute import (
    can_show_storage,
    is_absolute,
    storage_length,
    viewed_inputs,
    whole_storage,
)
from neuron_compile.cache.warn_once import warn_once
from neuron_compile.errors import LoweringError
from neuron_compile.placement import user_line
from neuron_compile.views import path_from

# Numbers that depend on a symbolic size, as they stand in a captured graph.
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

# So many sizes of one graph deserve a word of advice.
_MANY = 16
# Sizes of one graph whose code stays loaded; older ones are loaded again from the cache.
_KEPT = 1024

Runner = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Argument:
    """What one argument of a call looks like: an int, or the layout of a tensor; strides, and the
    offset in a storage of so many, in elements.
    """

    number: int | float | None
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    storage: int = 0


@dataclass(frozen=True, slots=True)
class ChangedView:
    """Output `output` is a view of the new value, output `value`, of input `source` (positions).

    AOTAutograd writes the value back and makes the view again from the input. If symbolic sizes
    keep it from repeating the view, it goes by sizes, strides and offset of what the graph returned
    and of the tensor that is a view of. A new value lies elsewhere than the input: in dense memory,
    from its beginning.
    """

    output: int
    value: int
    source: int


def is_dynamic(graph: torch.fx.GraphModule) -> bool:
    """True if a size or a number in the graph is symbolic."""
    return any(_has_symbol(node.meta.get("val")) for node in graph.graph.nodes)


def varies(graph: torch.fx.GraphModule) -> bool:
    """True if the code depends on more of the arguments than Dynamo guards."""
    return is_dynamic(graph) or bool(viewed_inputs(graph))


def specializing_callable(
    graph: torch.fx.GraphModule,
    make: Callable[[torch.fx.GraphModule, Sequence[Argument]], Runner],
    changed_views: Sequence[ChangedView] = (),
) -> Runner:
    """A boxed callable for a graph that `varies`; `make(graph, arguments)` compiles a static
    one.
    """
    specializations = _Specializations(graph, make, changed_views)
    viewed = specializations.viewed

    def call(args: list[Any]) -> Sequence[Any]:
        runner = specializations.runner(args)
        for i in viewed:
            args[i] = whole_storage(args[i])
        return runner(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


class _Specializations:
    """Finds, or makes, the runner for the concrete sizes of a call; safe from several threads."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        make: Callable[[torch.fx.GraphModule, Sequence[Argument]], Runner],
        changed_views: Sequence[ChangedView],
    ) -> None:
        self._graph = graph
        self._make = make
        self._changed_views = changed_views
        self._runners: dict[tuple[Any, ...], Runner] = {}
        self._lock = threading.Lock()
        self._made = 0
        placeholders = graph.graph.find_nodes(op="placeholder")
        values = [n.meta.get("val") for n in placeholders]
        viewed = set(viewed_inputs(graph).values())
        self.viewed = tuple(i for i, node in enumerate(placeholders) if node in viewed)
        self._numbers = tuple(
            i for i, value in enumerate(values) if not isinstance(value, torch.Tensor)
        )
        # A tensor without symbols has one layout only: Dynamo guards it.
        self._tensors = tuple(
            i
            for i, value in enumerate(values)
            if isinstance(value, torch.Tensor) and _has_symbol(value)
        )

    def runner(self, args: list[Any]) -> Runner:
        signature = (
            *[args[i] for i in self._numbers],
            *[(args[i].shape, args[i].stride()) for i in self._tensors],
            *[(args[i].storage_offset(), storage_length(args[i])) for i in self.viewed],
        )
        runner = self._runners.get(signature)
        return self._specialize(signature, args) if runner is None else runner

    def _specialize(self, signature: tuple[Any, ...], args: list[Any]) -> Runner:
        with self._lock:
            runner = self._runners.get(signature)
            if runner is None:
                arguments = [_describe(value) for value in args]
                concrete = concrete_graph(self._graph, arguments, self._changed_views)
                runner = self._make(concrete, arguments)
                self._keep(signature, runner)
        return runner

    def _keep(self, signature: tuple[Any, ...], runner: Runner) -> None:
        self._runners[signature] = runner
        self._made += 1
        if self._made == _MANY:
            # Said once in a process: it is the model's way of working, not an accident (T126).
            warn_once(
                "many-sizes",
                f"one graph was compiled for {_MANY} different sizes or numbers; each new one "
                "costs a compilation. Pad inputs to a few lengths (to the next power of two, say), "
                "and pass Python integers that change, such as positions, as tensors",
            )
        if len(self._runners) > _KEPT:
            self._runners.pop(next(iter(self._runners)))


def concrete_graph(
    graph: torch.fx.GraphModule,
    arguments: Sequence[Argument],
    changed_views: Sequence[ChangedView] = (),
) -> torch.fx.GraphModule:
    """The graph for these arguments: numbers folded, sizes re-propagated through every operator.

    Placeholders keep their positions; one that stands for a number has that number as its meta and
    no user. One that is viewed at an absolute position becomes its whole storage, and the input a
    view of that. The outputs that are `changed_views` become views of the inputs.
    """
    new = torch.fx.Graph()
    values: dict[torch.fx.Node, Any] = {}  # old node -> FakeTensor(s) or number
    copies: dict[torch.fx.Node, Any] = {}  # old node -> new node, or the number itself
    remaining = iter(arguments)
    viewed = viewed_inputs(graph)
    storages: dict[torch.fx.Node, torch.fx.Node] = {}  # old placeholder -> new one
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for node in graph.graph.nodes:
            if node.op == "output":
                result = list(torch.fx.map_arg(node.args[0], copies.__getitem__))
                for view in changed_views:
                    found = _view_of_input(new, graph.graph, view, copies, values)
                    result[view.output] = found or result[view.output]
                new.output(tuple(result)).meta.update(node.meta)
                break
            if node in viewed.values():
                argument = next(remaining)
                storages[node] = _storage_placeholder(new, node, argument)
                copies[node] = _input_in_storage(new, storages[node], argument)
                values[node] = copies[node].meta["val"]
                continue
            if node.op == "placeholder":
                values[node] = _fake_argument(node, next(remaining))
            elif node.op == "get_attr":
                values[node] = _fake_attribute(graph, node, mode)
            else:
                values[node] = _evaluate(node, values)
            if node.op != "placeholder" and isinstance(values[node], int | float | bool):
                copies[node] = values[node]
                continue
            copy = new.node_copy(node, copies.__getitem__)
            copy.meta = {**node.meta, "val": values[node]}
            if node in viewed and can_show_storage(node, viewed[node]):
                copy.args = (storages[viewed[node]], *copy.args[1:])
            copies[node] = values[node] if isinstance(values[node], int | float) else copy
    return torch.fx.GraphModule(graph, new)


def concrete_size(
    value: int | torch.SymInt, placeholders: Sequence[Any], arguments: Sequence[Argument]
) -> int:
    """The number that `value` stands for, given the symbolic metas and the actual arguments of the
    graph.

    Raises LoweringError if it depends on data, which no size of an argument tells.
    """
    if isinstance(value, int):
        return value
    bindings: dict[Any, Any] = {}
    for meta, argument in zip(placeholders, arguments, strict=True):
        pairs = (
            zip(meta.shape, argument.size, strict=True)
            if isinstance(meta, torch.Tensor)
            else [(meta, argument.number)]
        )
        for symbolic, number in pairs:
            if isinstance(symbolic, torch.SymInt) and symbolic.node.expr.is_Symbol:
                bindings[symbolic.node.expr] = number
    found = value.node.expr.subs(bindings)
    if not found.is_Integer:
        raise _depends_on_data(f"size {value} of an output")
    return int(found)


def _has_symbol(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(
            isinstance(number, torch.SymInt)
            for number in (*value.shape, *value.stride(), value.storage_offset())
        )
    if isinstance(value, list | tuple):
        return any(_has_symbol(item) for item in value)
    return isinstance(value, SYMBOLIC)


def _describe(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return Argument(
            None,
            tuple(value.shape),
            value.stride(),
            value.storage_offset(),
            storage_length(value),
        )
    return Argument(value)


def _fake_argument(node: torch.fx.Node, argument: Argument) -> Any:
    meta = node.meta.get("val")  # none of a number, where the graph was traced for numbers
    if not isinstance(meta, torch.Tensor):
        return argument.number
    # Offset 0: nothing may depend on where in its storage an input begins, for Dynamo does not
    # guard that.
    return _pending_as(
        meta,
        torch.empty_strided(argument.size, argument.stride, dtype=meta.dtype, device=meta.device),
    )


def _pending_as(like: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """With the conjugation and negation that `like`, and so every argument, has yet to undergo."""
    made = made.conj() if like.is_conj() else made
    return torch._neg_view(made) if like.is_neg() else made


def _storage_placeholder(
    new: torch.fx.Graph, node: torch.fx.Node, argument: Argument
) -> torch.fx.Node:
    like = node.meta["val"]
    whole = new.node_copy(node)
    row = torch.empty(argument.storage, dtype=like.dtype, device=like.device)
    whole.meta = {**node.meta, "val": _pending_as(like, row)}
    return whole


def _input_in_storage(
    new: torch.fx.Graph, whole: torch.fx.Node, argument: Argument
) -> torch.fx.Node:
    """The input itself, where the call has it."""
    place = (argument.size, argument.stride, argument.offset)
    view = new.call_function(
        torch.ops.aten.as_strided.default, (whole, *map(list, place[:2]), place[2])
    )
    view.meta = {**whole.meta, "val": whole.meta["val"].as_strided(*place)}
    return view


def _view_of_input(
    new: torch.fx.Graph,
    old: torch.fx.Graph,
    view: ChangedView,
    copies: dict[torch.fx.Node, Any],
    values: dict[torch.fx.Node, Any],
) -> torch.fx.Node | None:
    """The views between the new value and the output, repeated on the input; None if an operator in
    between is no view, or takes one at an absolute position, where the input does not matter.
    """
    outputs: Sequence[Any] = old.output_node().args[0]  # type: ignore[assignment]
    source = old.find_nodes(op="placeholder")[view.source]
    changed = outputs[view.value]
    path = path_from(changed, outputs[view.output])
    if path is None or any(is_absolute(node) for node in path):
        return None
    copies, values = {**copies, changed: copies[source]}, {**values, changed: values[source]}
    for node in path:
        values[node] = _evaluate(node, values)
        copies[node] = new.node_copy(node, copies.__getitem__)
        copies[node].meta = {**node.meta, "val": values[node]}
    return copies[outputs[view.output]]


def _fake_attribute(graph: torch.fx.GraphModule, node: torch.fx.Node, mode: FakeTensorMode) -> Any:
    value = operator_attrgetter(graph, str(node.target))
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def operator_attrgetter(graph: torch.fx.GraphModule, target: str) -> Any:
    """The attribute a get_attr node names; dots lead into submodules."""
    value: Any = graph
    for part in target.split("."):
        value = getattr(value, part)
    return value


def _evaluate(node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
    args = torch.fx.map_arg(node.args, values.__getitem__)
    kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
    if node.target in (operator.add, operator.mul):  # of symbolic sizes, of any number of them
        return functools.reduce(node.target, args)
    try:
        return node.target(*args, **kwargs)  # type: ignore[operator]
    except (DynamicOutputShapeException, DataDependentOutputException):
        raise _depends_on_data(f"the result of {node.target}", user_line(node)) from None


def _depends_on_data(what: str, where: str = "") -> LoweringError:
    return LoweringError(
        f"{what} depends on data",
        where=where,
        why="a NEFF is made for concrete sizes, which are known only from the inputs' sizes",
        remedy="leave capture_dynamic_output_shape_ops and capture_scalar_outputs of "
        "torch._dynamo.config off, so that the graph breaks there",
    )
