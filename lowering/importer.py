"""Import of an FX graph into MLIR: Torch-MLIR's importer with our emitters spliced in.

In: an FX graph of aten ops. Out: a module whose `@main` takes and returns builtin tensors.
Invariant: a node whose exact overload is in the registry becomes StableHLO at once; any other
becomes a torch-dialect op, with `torch_c` casts only where the two kinds of value meet.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch_mlir import ir
from torch_mlir.dialects import func
from torch_mlir.extras.fx_importer import FxImporter, GraphNodeImporter

from neuron_compile.errors import LoweringError, NeuronCompileError
from neuron_compile.lowering import locations
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.pairs import Pair, join, real_dtype, split
from neuron_compile.lowering.registry import Rule, rule_for_node
from neuron_compile.lowering.strides import strides_attribute

# Keywords that say where a tensor lives or how it is laid out, never what it holds: the layout is
# in meta["val"] and is the caller's business, so emitters do not see them.
_PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})


@dataclass(frozen=True, slots=True)
class Imported:
    """`torch_ops` are the nodes left in the torch dialect, for Torch-MLIR to translate."""

    module: ir.Module
    torch_ops: tuple[torch.fx.Node, ...]
    uses_random: bool


def import_graph(graph: torch.fx.GraphModule) -> Imported:
    """Import a graph as `@main` of a new module in the current context."""
    with _logging_left_alone():
        return _GraphImporter(ir.Context.current).import_main(graph)


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Torch-MLIR logs by `logging.debug`, which sets up the root logger unless it has a handler.

    The application would then find its own `basicConfig` without effect.
    """
    handler = logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _GraphImporter(FxImporter):
    """Torch-MLIR's program importer, for one function over builtin tensors."""

    def __init__(self, context: ir.Context) -> None:
        super().__init__(context=context, graph_node_importer_cls=_NodeImporter)

    def import_main(self, graph: torch.fx.GraphModule) -> Imported:
        nodes = list(graph.graph.nodes)
        with ir.Location.unknown(self._c):
            main = func.FuncOp("main", ir.FunctionType.get([], []), ip=self._m_ip)
            entry = ir.Block.create_at_start(main.body, [])
            importer = _NodeImporter(self, self._c, self._cc, entry)
            importer.import_nodes(nodes)
            inputs = [argument.type for argument in entry.arguments]
            outputs = [value.type for value in importer.returned]
            main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs))
            placeholders = [n.meta["val"] for n in nodes if n.op == "placeholder"]
            results = [n.meta["val"] for n in nodes[-1].args[0]]
            main.attributes["arg_attrs"] = _strides(placeholders, len(inputs))
            main.attributes["res_attrs"] = _strides(results, len(outputs))
        return Imported(self.module, tuple(importer.torch_ops), importer.builder.uses_random)


def _strides(tensors: Sequence[torch.Tensor], count: int) -> ir.Attribute:
    attributes = [strides_attribute(tensor) for tensor in tensors]
    attributes += [{}] * (count - len(attributes))  # the random state
    return ir.ArrayAttr.get([ir.DictAttr.get(named) for named in attributes])


class _NodeImporter(GraphNodeImporter):
    """Imports the nodes of one function.

    `_builtin` holds the builtin-tensor form of a node's results, the base class's `_v` the
    `!torch.vtensor` form; either is made from the other when first asked for.
    """

    __slots__ = ("_builtin", "builder", "returned", "torch_ops")

    def __init__(
        self, fx_importer: FxImporter, context: ir.Context, context_cache: Any, block: ir.Block
    ) -> None:
        super().__init__(fx_importer, context, context_cache, block)
        self.builder = Builder(context, block)
        self.returned: list[ir.Value] = []
        self.torch_ops: list[torch.fx.Node] = []
        self._builtin: dict[tuple[torch.fx.Node, int], ir.Value | Pair] = {}

    # ---- the graph ---------------------------------------------------------------------------

    def import_nodes(self, nodes: Iterable[torch.fx.Node], **_: Any) -> None:
        with ir.InsertionPoint(self._b):
            location = ir.Location.unknown(self._c)
            for node in nodes:
                # A node without a trace is a helper of the one before it.
                location = locations.location(node, self._c) or location
                self.builder.enter(node, location)
                self._import_node(node, location)

    def _import_node(self, node: torch.fx.Node, location: ir.Location) -> None:
        if node.op == "placeholder":
            self._import_placeholder(node, location)
        elif node.op == "get_attr":
            self._import_constant(node)
        elif node.op == "output":
            self.returned = [self._result(result) for result in node.args[0]]
            func.ReturnOp(self.returned, loc=location)
        elif node.target is operator.getitem:
            self._import_item(node, location)
        elif isinstance(node.target, OpOverload):
            self._import_operator(node, location)
        else:
            raise LoweringError(
                f"{node.target} is no aten operator", where=locations.describe(node)
            )

    def _import_operator(self, node: torch.fx.Node, location: ir.Location) -> None:
        rule = rule_for_node(node)
        if rule is not None:
            self._emit(rule, node)
        else:
            self._leave_to_torch_mlir(node, location)

    def _import_placeholder(self, node: torch.fx.Node, location: ir.Location) -> None:
        tensor = node.meta["val"]
        if tensor.dtype.is_complex:
            memory = self.builder.types.tensor((*tensor.shape, 2), real_dtype(tensor.dtype))
            self._builtin[node, 0] = split(self.builder, self._b.add_argument(memory, location))
        else:
            self._builtin[node, 0] = self._b.add_argument(self.builder.result_type(), location)

    def _result(self, node: torch.fx.Node) -> ir.Value:
        value = self._builtin_value(node)
        return join(self.builder, value) if isinstance(value, Pair) else value

    def _import_constant(self, node: torch.fx.Node) -> None:
        value: Any = node.graph.owning_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            raise LoweringError(
                f"the graph's attribute {node.target} is a {type(value).__name__}, not a tensor",
                where=locations.describe(node),
            )
        if value.dtype.is_complex:
            parts = (self.builder.array(v) for v in (value.real, value.imag))
            self._builtin[node, 0] = Pair(*parts)
        else:
            self._builtin[node, 0] = self.builder.array(value)

    def _import_item(self, node: torch.fx.Node, location: ir.Location) -> None:
        source, index = node.args
        if (source, index) in self._builtin:
            self._builtin[node, 0] = self._builtin[source, index]
        else:
            self._import_getitem(location, node)

    # ---- our emitters ------------------------------------------------------------------------

    def _emit(self, rule: Rule, node: torch.fx.Node) -> None:
        args = [self._argument(arg) for arg in node.args]
        kwargs = {
            name: self._argument(arg) for name, arg in node.kwargs.items() if name not in _PLACEMENT
        }
        try:
            made = rule.emit(self.builder, *args, **kwargs)
        except NeuronCompileError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError) as error:
            raise LoweringError(
                f"the emitter of {node.target} failed: {error}",
                where=locations.describe(node),
                why=node.format_node() or "",
                remedy="report this graph: it is a fault of neuron-compile",
            ) from error
        self._bind(node, [made] if isinstance(made, (ir.Value, Pair)) else list(made))

    def _bind(self, node: torch.fx.Node, results: Sequence[ir.Value | Pair | None]) -> None:
        for index, value in enumerate(results):
            if value is None:
                continue
            expected = self.builder.result_type(index)
            first = value.real if isinstance(value, Pair) else value
            if first.type != expected:
                raise LoweringError(
                    f"the emitter of {node.target} made {first.type} where "
                    f"{expected} is due (result {index})",
                    where=locations.describe(node),
                    remedy="report this graph: it is a fault of neuron-compile",
                )
            self._builtin[node, index] = value

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            return self._builtin_value(arg)
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        return arg

    def _builtin_value(self, node: torch.fx.Node) -> ir.Value | Pair:
        known = self._builtin.get((node, 0))
        if known is None:
            value = super().resolve_node_value(node)
            tensor = node.meta["val"]
            known = self.builder.op1(
                "torch_c.to_builtin_tensor",
                [value],
                self.builder.types.tensor(tensor.shape, tensor.dtype),
            )
            self._builtin[node, 0] = known
        return known

    # ---- Torch-MLIR's road -------------------------------------------------------------------

    def _leave_to_torch_mlir(self, node: torch.fx.Node, location: ir.Location) -> None:
        self.torch_ops.append(node)
        self._import_torch_op_overload(location, node)

    def resolve_node_value(self, node: torch.fx.Node, result_index: int = 0) -> ir.Value:
        """The `!torch.vtensor` form of a value, for torch-dialect ops."""
        ours = self._builtin.get((node, result_index))
        if isinstance(ours, ir.Value) and (node, result_index) not in self._v:
            value = node.meta["val"]
            tensor = value[result_index] if isinstance(value, (list, tuple)) else value
            torch_type = self._cc.get_vtensor_type(tensor.shape, tensor.dtype)
            self._v[node, result_index] = self.builder.op1(
                "torch_c.from_builtin_tensor", [ours], torch_type
            )
        return super().resolve_node_value(node, result_index)
