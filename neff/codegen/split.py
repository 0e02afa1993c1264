"""Cuts a group at the operations whose elements cannot be pulled: each gets kernels of its own.

In: a group of any kind. Out: its kernels. The operands of such an operation are pulled or stored
before it; its results lie in memory afterwards, and the rest of the group reads them there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neuron_compile.neff.codegen.contract import product_kernels
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.macs import CONTRACTIONS
from neuron_compile.neff.codegen.program import Group, Node, postorder
from neuron_compile.neff.codegen.scan import direction_of, scan_kernels
from neuron_compile.neff.codegen.scatter import scatter_kernels
from neuron_compile.neff.codegen.select_and_scatter import select_and_scatter_kernels
from neuron_compile.neff.codegen.sort import direct_roots, sort_kernels
from neuron_compile.neff.codegen.workspace import Workspace, workspace_of
from neuron_compile.neff.target import Target

PROLOGUE_OPS = 8  # a product reads its operands several times

# Makes the kernels of one operation: (its results in use, where to store them, workspace).
Generator = Callable[[Sequence[Node], Sequence[Root], Workspace], None]

_GENERATORS: dict[str, Generator] = {
    "stablehlo.scatter": scatter_kernels,
    "stablehlo.select_and_scatter": select_and_scatter_kernels,
    "stablehlo.sort": sort_kernels,
    "chlo.top_k": sort_kernels,
}


def generator_of(node: Node) -> Generator | None:
    """What makes the kernels of `node`'s operation; None where elements can be pulled."""
    if direction_of(node) is not None:
        return scan_kernels
    return _GENERATORS.get(node.op)


def needs_split(group: Group) -> bool:
    """Whether pulling alone will not do. Two products pulled through each other take forever."""
    if any(generator_of(n) is not None for n in group.nodes()):
        return True
    return group.kind != "attention" and sum(n.op in CONTRACTIONS for n in group.nodes()) > 1


def split_kernels(group: Group, name: str, target: Target) -> list[Kernel]:
    """Kernels of a group that holds at least one operation that cannot be pulled."""
    work = workspace_of(group, name, target)
    by_operation: dict[int, list[Node]] = {}
    for node in group.nodes():
        if node.op in CONTRACTIONS or generator_of(node) is not None:
            by_operation.setdefault(node.operation, []).append(node)
    made = list(by_operation.values())
    for i, nodes in enumerate(made):
        later = [o for others in made[i + 1 :] for o in others[0].operands]
        if not _made_directly(nodes, later, work):
            _make(nodes, work)
    work.store(work.roots)
    return work.finished()


def _make(nodes: Sequence[Node], work: Workspace) -> None:
    """Kernels of one operation, whose results `nodes` are used."""
    generator = generator_of(nodes[0]) or _product_kernels
    roots = [_place(node, work) for node in nodes]
    if roots[0].output.size:
        generator(nodes, roots, work)
    for root in roots:
        work.leaves[root.node] = root.number


def _made_directly(nodes: Sequence[Node], later: Sequence[Node], work: Workspace) -> bool:
    """Store what is made of sorted operands instead of them, if nothing else reads them."""
    if generator_of(nodes[0]) is not sort_kernels or any(
        n in nodes for n in postorder(tuple(later))
    ):
        return False
    roots = direct_roots(nodes, work)
    if not roots:
        return False
    sort_kernels(nodes, roots, work)
    work.roots = [r for r in work.roots if r not in roots]
    return True


def _product_kernels(nodes: Sequence[Node], roots: Sequence[Root], work: Workspace) -> None:
    node = nodes[0]
    for operand in node.operands:
        work.make_readable(operand, PROLOGUE_OPS)
    name = work.next_name()
    work.kernels += product_kernels(node, roots, work.leaves, work.scratch, name, work.target)


def _place(node: Node, work: Workspace) -> Root:
    """Straight into a result's memory if the result is this node, seen through reshapes.

    Else scratch.
    """
    for i, root in enumerate(work.roots):
        if _reshaped(root.node, node) and root.output.strides == root.node.tensor.strides:
            del work.roots[i]
            return Root(node, node.tensor, root.number)
    return work.buffer(node)


def _reshaped(top: Node, node: Node) -> bool:
    while top is not node:
        if top.op != "stablehlo.reshape":
            return False
        top = top.operands[0]
    return True
