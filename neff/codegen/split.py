"""Cuts a group at the operations whose elements cannot be pulled: each gets kernels of its own.

In: a group of any kind. Out: its kernels. Such an operation's operands are pulled or stored in scratch memory
before it, its results lie in memory afterwards, and what remains of the group reads them like parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.program import Group, Node
from neuron_compile.neff.codegen.scan import direction_of, scan_kernels
from neuron_compile.neff.codegen.scatter import scatter_kernels
from neuron_compile.neff.codegen.select_and_scatter import select_and_scatter_kernels
from neuron_compile.neff.codegen.sort import sort_kernels
from neuron_compile.neff.codegen.workspace import Workspace, workspace_of
from neuron_compile.neff.target import Target

# Makes the kernels of one operation: (one of its results, where to store each, workspace).
Generator = Callable[[Node, Sequence[Root], Workspace], None]

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
    return any(generator_of(n) is not None for n in group.nodes())


def split_kernels(group: Group, name: str, target: Target) -> list[Kernel]:
    """Kernels of a group that holds at least one operation that cannot be pulled."""
    work = workspace_of(group, name, target)
    by_operation: dict[int, list[Node]] = {}
    for node in group.nodes():
        if generator_of(node) is not None:
            by_operation.setdefault(node.operation, []).append(node)
    for nodes in by_operation.values():
        _make(nodes, work)
    work.store(work.roots)
    return work.finished()


def _make(nodes: Sequence[Node], work: Workspace) -> None:
    """Kernels of one operation, whose results `nodes` are used."""
    generator = generator_of(nodes[0])
    assert generator is not None
    roots = [_place(node, work) for node in nodes]
    if roots[0].output.size:
        generator(nodes[0], roots, work)
    for root in roots:
        work.leaves[root.node] = root.number


def _place(node: Node, work: Workspace) -> Root:
    """Straight into a result's memory if the result is this node, seen through reshapes; else scratch."""
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
