"""Where the updates of a StableHLO `scatter` go.

In: a scatter node. Out: a `Geometry`: what each operand dimension's index is made of, and which
dimensions of the updates may run in parallel because different values never meet.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_compile.neff.codegen.index import Index, constant
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.views import Indices


@dataclass(frozen=True, slots=True)
class Axis:
    """An operand dimension's index: start (run time) + update index along `along` (None: 0)."""

    extent: int
    start: int | None  # position in the index vector
    along: int | None  # dimension of the updates


@dataclass(frozen=True, slots=True)
class Geometry:
    """`inputs[i]`, `updates[i]` and result i belong together.

    `axes` has one entry per operand dimension.
    """

    inputs: tuple[Node, ...]
    indices: Node
    updates: tuple[Node, ...]
    axes: tuple[Axis, ...]
    scatter_dims: tuple[int, ...]  # dimensions of the updates that choose the index vector
    vector_dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the updates."""
        return self.updates[0].shape

    @property
    def parallel(self) -> tuple[int, ...]:
        """Dimensions of the updates that are an operand index as they are."""
        free = {a.along for a in self.axes if a.start is None}
        return tuple(d for d in range(len(self.shape)) if d in free)

    @property
    def serial(self) -> tuple[int, ...]:
        """All others: along them two updates may meet the same element, so their order counts."""
        free = self.parallel
        return tuple(d for d in range(len(self.shape)) if d not in free)

    def index_at(self, update: Indices, position: int) -> Indices:
        """Where element `position` of the index vector lies in `indices` for an update index."""
        where = [update[d] for d in self.scatter_dims]
        if self.vector_dim < len(self.indices.shape):
            where.insert(self.vector_dim, constant(position))
        return tuple(where)

    def fixed_part(self, update: Indices) -> tuple[Index, ...]:
        """The part of the operand index that does not depend on the index vector."""
        return tuple(constant(0) if a.along is None else update[a.along] for a in self.axes)


def geometry_of(node: Node) -> Geometry:
    count = len(node.operands) // 2
    inputs, indices, updates = (
        node.operands[:count],
        node.operands[count],
        node.operands[count + 1 :],
    )
    dims = node.attributes["scatter_dimension_numbers"]
    window_dims = dims.get("update_window_dims", ())
    inserted = dims.get("inserted_window_dims", ())
    batching = dims.get("input_batching_dims", ())
    indices_batching = dims.get("scatter_indices_batching_dims", ())
    start_map = dims.get("scatter_dims_to_operand_dims", ())
    vector_dim = dims.get("index_vector_dim", 0)
    scatter_dims = tuple(d for d in range(len(updates[0].shape)) if d not in window_dims)
    window = iter(window_dims)
    axes = []
    for d, extent in enumerate(inputs[0].shape):
        along: int | None = None
        if d in batching:
            where = indices_batching[batching.index(d)]
            along = scatter_dims[where if where < vector_dim else where - 1]
        elif d not in inserted:
            along = next(window)
        axes.append(Axis(extent, start_map.index(d) if d in start_map else None, along))
    return Geometry(inputs, indices, updates, tuple(axes), scatter_dims, vector_dim)
