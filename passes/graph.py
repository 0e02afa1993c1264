"""A light mirror of `@main`: nodes and values with their users, kept in step with the MLIR beneath.

In: a `func.func` of one block. Out: `Graph`, which passes read instead of the (slow) bindings and
edit with `create`, `replace` and `prune`. Invariant: after each edit both sides say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import prod

from torch_mlir import ir

from neuron_compile.errors import PassError

BITS = {
    "i1": 8,  # one byte each in memory
    "i4": 8,
    "ui4": 8,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "complex<f32>": 64,
    "complex<f64>": 128,
}


def width(dtype: str) -> int:
    """Bits of an element in memory."""
    return BITS.get(dtype) or int(dtype.lstrip("uif"))


# Shape, dtype, number of elements and of bytes of a tensor type.
_Kind = tuple[tuple[int, ...], str, int, int]


class Value:
    """A static ranked tensor: an argument of `@main` (`node` is None) or a result of a node."""

    __slots__ = ("dtype", "index", "ir", "nbytes", "node", "numel", "shape", "users")

    def __init__(self, value: ir.Value, kind: _Kind, node: Node | None, index: int) -> None:
        self.ir = value
        self.shape, self.dtype, self.numel, self.nbytes = kind
        self.node = node
        self.index = index
        self.users: list[Node] = []  # one entry per operand slot

    def __repr__(self) -> str:
        origin = f"arg{self.index}" if self.node is None else f"{self.node.name}#{self.index}"
        return f"<{origin} {'x'.join(map(str, self.shape))}:{self.dtype}>"


class Node:
    """One op of `@main`. `operands` ends with the values that its regions capture, if any."""

    __slots__ = ("_ints", "captures", "dead", "name", "op", "operands", "order", "results")

    def __init__(self, op: ir.Operation, name: str, operands: list[Value], captures: int) -> None:
        self.op = op
        self.name = name  # without the prefix "stablehlo."
        self.operands = operands
        self.captures = captures
        self.results: list[Value] = []
        self.order = 0
        self.dead = False
        self._ints: dict[str, tuple[int, ...]] = {}

    @property
    def result(self) -> Value:
        return self.results[0]

    def ints(self, attribute: str) -> tuple[int, ...]:
        """An array or dense integer attribute, flat; () where it is absent."""
        known = self._ints.get(attribute)
        if known is None:
            attributes = self.op.attributes
            known = tuple(attributes[attribute]) if attribute in attributes else ()
            self._ints[attribute] = known
        return known

    def int(self, attribute: str) -> int:
        return ir.IntegerAttr(self.op.attributes[attribute]).value

    def __repr__(self) -> str:
        return f"<{self.name} {self.results}>"


Rule = Callable[["Graph", Node], "Value | None"]


class Graph:
    """`@main` of a module. `nodes` are in program order and leave out the terminator."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.func = main_function(module)
        self.block = self.func.regions[0].blocks[0]
        self._types: dict[ir.Type, _Kind] = {}
        self._values: dict[ir.Value, Value] = {}
        self.args = [
            self._add_value(arg, None, index) for index, arg in enumerate(self.block.arguments)
        ]
        self.nodes: list[Node] = []
        self._pending: list[Node] | None = None
        for op in self.block.operations:
            op = op.operation
            if op.name == "func.return":
                self.terminator = op
                self.outputs = [self._values[value] for value in op.operands]
            else:
                self.nodes.append(self._add_node(op))
        self.renumber()

    def _add_value(self, value: ir.Value, node: Node | None, index: int) -> Value:
        mlir_type = value.type
        known = self._types.get(mlir_type)
        if known is None:
            tensor = ir.RankedTensorType(mlir_type)
            shape, dtype = tuple(tensor.shape), str(tensor.element_type)
            known = (shape, dtype, prod(shape), prod(shape) * width(dtype) // 8)
            self._types[mlir_type] = known
        made = Value(value, known, node, index)
        self._values[value] = made
        return made

    def _add_node(self, op: ir.Operation) -> Node:
        values = self._values
        operands = [values[operand] for operand in op.operands]
        captured = [values[v] for v in captures(op, values)] if len(op.regions) else []
        name = op.name
        if name.startswith("stablehlo."):
            name = name[10:]
        node = Node(op, name, operands + captured, len(captured))
        for operand in node.operands:
            operand.users.append(node)
        node.results = [self._add_value(r, node, index) for index, r in enumerate(op.results)]
        return node

    def renumber(self) -> None:
        for order, node in enumerate(self.nodes):
            node.order = order

    def create(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[ir.Type],
        attributes: Mapping[str, ir.Attribute] | None = None,
        *,
        before: Node,
        like: Node | None = None,
    ) -> Node:
        """A new op in front of `before`; `like` lends its location (default: `before`)."""
        op = ir.Operation.create(
            name if "." in name else f"stablehlo.{name}",
            results=list(types),
            operands=[operand.ir for operand in operands],
            attributes=dict(attributes or {}),
            loc=(like or before).op.location,
            ip=ir.InsertionPoint(before.op),
        )
        return self.adopt(op, before)

    def adopt(self, op: ir.Operation, before: Node) -> Node:
        """Mirrors an op that was just put into the block in front of `before`."""
        node = self._add_node(op.operation)
        if self._pending is not None:
            self._pending.append(node)
        else:
            self.nodes.insert(self.nodes.index(before), node)
            self.renumber()
        return node

    def append(self, op: ir.Operation) -> Node:
        """Mirrors an op that was just put in front of the terminator."""
        node = self._add_node(op.operation)
        node.order = len(self.nodes)
        self.nodes.append(node)
        return node

    def move_after(self, node: Node, anchor: Node) -> None:
        """Moves a node to directly after `anchor`, the producer of its operands."""
        node.op.move_after(anchor.op)
        self.nodes.remove(node)
        self.nodes.insert(self.nodes.index(anchor) + 1, node)
        self.renumber()

    def replace(self, old: Value, new: Value, keep: Node | None = None) -> None:
        """Every use of `old` but those of `keep` reads `new` instead."""
        if old is new:
            return
        if keep is None:
            old.ir.replace_all_uses_with(new.ir)
        else:
            old.ir.replace_all_uses_except(new.ir, keep.op)
        moved = [user for user in old.users if user is not keep]
        for user in set(moved):
            user.operands = [new if operand is old else operand for operand in user.operands]
        new.users.extend(moved)
        old.users = [user for user in old.users if user is keep]
        self.outputs = [new if output is old else output for output in self.outputs]

    def rewrite(self, rules: Mapping[str, Iterable[Rule]]) -> bool:
        """One sweep in program order. A rule answers the value that stands for a node's result.

        Rules may create nodes in front of the node they are given. Dead code goes away at the end.
        """
        changed = False
        swept: list[Node] = []
        for node in self.nodes:
            if not node.results[0].users and len(node.results) == 1 and self._unused(node):
                swept.append(node)
                continue
            self._pending = swept
            for rule in rules.get(node.name, ()):
                new = rule(self, node)
                if new is not None:
                    changed = True
                    self.replace(node.result, new)
                    break
            swept.append(node)
        self._pending = None
        self.nodes = swept
        if changed:
            self.prune()
        return changed

    def merge_equal(self) -> None:
        """Common subexpressions: of equal nodes without regions the first one stays."""
        known: dict[tuple[object, ...], list[Node]] = {}
        changed = False
        for node in self.nodes:
            result = node.results[0]
            key = (node.name, result.shape, result.dtype, *map(id, node.operands))
            alike = known.setdefault(key, [])
            first = next((other for other in alike if _same_op(node.op, other.op)), None)
            if first is None or node.name == "rng":
                alike.append(node)
                continue
            changed = True
            for old, new in zip(node.results, first.results, strict=True):
                self.replace(old, new)
        if changed:
            self.prune()

    def _unused(self, node: Node) -> bool:
        return not any(result.users or result in self.outputs for result in node.results)

    def prune(self) -> None:
        """Erases the nodes nobody reads: no op we accept has side effects."""
        outputs = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node.results[0].users or any(r.users or r in outputs for r in node.results):
                kept.append(node)
                continue
            node.dead = True
            for operand in node.operands:
                operand.users.remove(node)
            for result in node.results:
                del self._values[result.ir]
            node.op.erase()
        kept.reverse()
        self.nodes = kept
        self.renumber()


def attributes_of(op: ir.Operation) -> dict[str, Hashable]:
    """The attributes of an op, to compare. The bindings cannot hold complex elements: as text."""
    if op.name == "stablehlo.constant" and "complex" in str(op.results[0].type):
        return {"value": constant_text(op)}
    attributes = op.attributes
    return {name: attributes[name] for name in attributes}


def constant_text(op: ir.Operation) -> str:
    """What a constant prints, its name and location left out."""
    text: str = op.get_asm(enable_debug_info=False)
    return text.split("=", 1)[1]


def _same_op(a: ir.Operation, b: ir.Operation) -> bool:
    """Whether two ops of one name, with the same operands, compute the same; False for regions."""
    if len(a.regions) or attributes_of(a) != attributes_of(b):
        return False
    return [r.type for r in a.results] == [r.type for r in b.results]


def main_function(module: ir.Module) -> ir.Operation:
    """`@main` of the module; raises PassError where there is none."""
    for op in module.body.operations:
        op = op.operation
        if op.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main":
            return op
    raise PassError("the module has no function @main", why="every pass works on @main")


def captures(op: ir.Operation, outer: Mapping[ir.Value, Value]) -> list[ir.Value]:
    """The values of `outer` that the regions of `op` read, each once."""
    found: dict[ir.Value, None] = {}

    def visit(nested: ir.Operation) -> ir.WalkResult:
        for operand in nested.operands:
            if operand in outer:
                found[operand] = None
        return ir.WalkResult.ADVANCE

    for region in op.regions:
        for block in region.blocks:
            for nested in block.operations:
                nested.operation.walk(visit)
    return list(found)
