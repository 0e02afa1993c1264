"""What travels through the pipeline: the module, its mirror, and the groups found so far.

In: a module with `@main`. Out: `Unit`, changed in place by each pass. Invariant: `graph` mirrors
`module` whenever it is read; a pass that edits the module beneath it calls `invalidate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from neuron_compile.passes.graph import Graph, Node


@dataclass(slots=True)
class GroupPlan:
    """Nodes of `@main` that become one private function. A cheap node may be in several plans."""

    kind: str  # one of ops.KINDS
    nodes: list[Node]  # in program order


@dataclass(slots=True)
class Unit:
    """One module on its way through the pipeline."""

    module: ir.Module
    groups: list[GroupPlan] = field(default_factory=list)
    _graph: Graph | None = None

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            self._graph = Graph(self.module)
        return self._graph

    def invalidate(self) -> None:
        self._graph = None
