"""What lies in memory while a group's kernels are made, and the scratch buffers added on the way.

In: the group's parameters and results. Out: pointer numbers: parameters, results, then scratch,
as in the kernels' table. Invariant: a number once given keeps its meaning for all kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

from neuron_compile.neff.codegen.contract import Scratch
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root, kernels_of
from neuron_compile.neff.codegen.program import Group, Node, Tensor, postorder
from neuron_compile.neff.codegen.reduction_specs import OPS, spec_of
from neuron_compile.neff.codegen.reductions import UNROLLED_POINTS
from neuron_compile.neff.target import Target


@dataclass(slots=True)
class Workspace:
    """`leaves`: nodes in memory, with their pointers; `roots`: results that are not stored yet."""

    name: str
    target: Target
    leaves: dict[Node, int]
    roots: list[Root]
    scratch: Scratch
    kernels: list[Kernel] = field(default_factory=list)

    def next_name(self) -> str:
        """A kernel name of this group that is not taken."""
        return f"{self.name}_s{len(self.kernels)}"

    def reserve(self, nbytes: int) -> int:
        """The pointer number of a new scratch buffer."""
        self.scratch.sizes.append(nbytes)
        return self.scratch.first + len(self.scratch.sizes) - 1

    def buffer(self, node: Node, output: Tensor | None = None) -> Root:
        """A new scratch buffer for `node`, laid out as `output` (default: row-major)."""
        return self.scratch.root(node, output or node.tensor)

    def store(self, roots: list[Root]) -> None:
        """Kernels that pull `roots` from the leaves."""
        self.kernels += kernels_of(roots, self.leaves, self.next_name(), self.target)

    def materialise(self, node: Node) -> None:
        """Make `node` a leaf."""
        if node not in self.leaves:
            root = self.buffer(node)
            self.store([root])
            self.leaves[node] = root.number

    def make_readable(self, node: Node, most_ops: int) -> None:
        """Materialise `node` unless pulling one element is a matter of at most `most_ops`
        operations.
        """
        if not is_simple(node, self.leaves.__contains__, most_ops):
            self.materialise(node)

    def finished(self) -> list[Kernel]:
        """All kernels, in order; the first one asks for the scratch memory of all."""
        if not self.kernels:
            return []
        first, *rest = self.kernels
        return [replace(first, scratch=tuple(self.scratch.sizes)), *rest]


def workspace_of(group: Group, name: str, target: Target) -> Workspace:
    """Everything is still to be stored; only the parameters lie in memory."""
    leaves = {p: i for i, p in enumerate(group.parameters)}
    first = len(leaves)
    outputs = zip(group.results, group.outputs, strict=True)
    roots = [Root(n, o, first + i) for i, (n, o) in enumerate(outputs) if o.size]
    return Workspace(name, target, leaves, roots, Scratch(first + len(group.results), []))


def is_simple(node: Node, is_leaf: Callable[[Node], bool], most_ops: int) -> bool:
    """Whether one element takes at most `most_ops` operations and no loop."""
    count = 0
    for n in postorder((node,), is_leaf):
        if is_leaf(n):
            continue
        count += 1
        if n.op in OPS and (prod(spec_of(n).extents) > UNROLLED_POINTS):
            return False
    return count <= most_ops
