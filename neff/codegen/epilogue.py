"""Whether a result of a contraction's group can be computed where the contraction's element is.

In: a root and the contraction's node. Out: the root's index as a function of the contraction's
index, or None. It exists if every element of the root uses the contraction at one index and the
mapping is one to one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.index import Index, Var, contiguous_strides, linear
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.views import Indices


@dataclass(frozen=True, slots=True)
class Inverse:
    """`root_at(c_at)`: where the root is evaluated for the contraction's element at `c_at`."""

    node: Node
    indices: Indices
    digits: tuple[
        tuple[Var, int], ...
    ]  # variables of `indices` with their weight in the linear index

    def root_at(self, at: Indices) -> Indices:
        flat = linear(at, contiguous_strides(self.node.shape))
        values = {v: flat // weight % v.extent for v, weight in self.digits}
        return tuple(i.substitute(values) for i in self.indices)


def invert(root: Node, contraction: Node, is_leaf: Callable[[Node], bool]) -> Inverse | None:
    """The inverse of the index mapping from `root` down to `contraction`."""
    if root.tensor.size != contraction.tensor.size:
        return None

    def used_at(at: Indices) -> list[Indices]:
        found = trace([(root, at)], lambda n: n is contraction or is_leaf(n))
        return [i for n, i in found.uses if n is contraction]

    def probe(at: Indices) -> list[Index]:
        return [linear(i, contiguous_strides(contraction.shape)) for i in used_at(at)]

    space = domain.fit(root.shape, probe, merge=False)
    uses = probe(space.indices)
    if len(uses) != 1 or uses[0].constant:
        return None
    weights: dict[Var, int] = {}
    for atom, weight in uses[0].terms:
        if not isinstance(atom, Var):
            return None
        weights[atom] = weight
    expected = 1
    for v, weight in sorted(weights.items(), key=lambda item: item[1]):
        if weight != expected:
            return None
        expected *= v.extent
    if expected != contraction.tensor.size or set(weights) != set(space.variables):
        return None
    return Inverse(contraction, space.indices, tuple(weights.items()))
