"""Classes of dims that run together inside a group, each marked as row, inner or neither.

In: relations between values. Out: whether a set of relations keeps rows and inner dims apart.
Invariant: `attempt` changes nothing when it answers None, and what it did can be undone.
"""

from __future__ import annotations

from collections.abc import Iterable

from neuron_compile.passes.graph import Value
from neuron_compile.passes.relations import Relation

NEITHER, ROW, INNER = 0, 1, 2

Undo = list[tuple[int, int, int, int]]


class DimClasses:
    """A union-find over (value, dim) with undo, hence without path compression."""

    __slots__ = ("_base", "_colour", "_parent", "_size")

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._size: list[int] = []
        self._colour: list[int] = []
        self._base: dict[Value, int] = {}

    def add(self, value: Value, colour: int = NEITHER) -> None:
        """Registers the dims of a value, all with one colour."""
        start = len(self._parent)
        rank = len(value.shape)
        self._base[value] = start
        self._parent.extend(range(start, start + rank))
        self._size.extend([1] * rank)
        self._colour.extend([colour] * rank)

    def colours(self, value: Value) -> list[int]:
        """The colour of each dim of `value`."""
        start = self._base[value]
        return [self._colour[self._find(start + d)] for d in range(len(value.shape))]

    def _find(self, element: int) -> int:
        parent = self._parent
        while parent[element] != element:
            element = parent[element]
        return element

    def attempt(self, edges: Iterable[tuple[Value, Value, Relation]]) -> Undo | None:
        """Applies the relations (source, result, relation); None, and no change, on a conflict."""
        undo: Undo = []
        for source, result, relation in edges:
            s, r = self._base[source], self._base[result]
            for source_bits, result_bits in relation.blocks:
                members = [s + d for d in bits(source_bits)] + [r + d for d in bits(result_bits)]
                first = members[0]
                for other in members[1:]:
                    if not self._union(first, other, undo):
                        self.undo(undo)
                        return None
            for d in bits(relation.inner | relation.resized):
                if not self._paint(s + d, INNER, undo):
                    self.undo(undo)
                    return None
        return undo

    def undo(self, changes: Undo) -> None:
        """Takes back what `attempt` did."""
        for child, root, size, colour in reversed(changes):
            self._parent[child] = child
            self._size[root] = size
            self._colour[root] = colour

    def _union(self, a: int, b: int, undo: Undo) -> bool:
        a, b = self._find(a), self._find(b)
        if a == b:
            return True
        colour_a, colour_b = self._colour[a], self._colour[b]
        if colour_a and colour_b and colour_a != colour_b:
            return False
        if self._size[a] < self._size[b]:
            a, b = b, a
        undo.append((b, a, self._size[a], self._colour[a]))
        self._parent[b] = a
        self._size[a] += self._size[b]
        self._colour[a] = colour_a or colour_b
        return True

    def _paint(self, element: int, colour: int, undo: Undo) -> bool:
        root = self._find(element)
        if self._colour[root] == colour:
            return True
        if self._colour[root]:
            return False
        undo.append((root, root, self._size[root], self._colour[root]))
        self._colour[root] = colour
        return True


def bits(mask: int) -> list[int]:
    """The positions of the set bits."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
