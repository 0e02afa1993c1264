"""Which results of a loop nest may be written over a parameter of the same layout.

In: what a nest reads and stores, and the pairs that a caller would like. Out: those that are right:
all reads of the parameter are at the place of the result that is being computed, and in this nest.
An optimizer's step is of this kind: new weights from old ones, element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neuron_compile.neff.codegen.elementwise import RULES
from neuron_compile.neff.codegen.index import ZERO, linear
from neuron_compile.neff.codegen.program import Node, Tensor
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices

# Element by element operators and views. The trace of reads is made to choose loops; that it is
# complete is asked of these alone.
_TRACED = frozenset({*RULES, *PERMUTATIONS, "stablehlo.pad", "stablehlo.concatenate"})
Pair = tuple[int, int]  # the pointers' numbers in the kernel's table: parameter, result


@dataclass(frozen=True, slots=True)
class Stored:
    """A result that is stored once at each point of a nest, at the index `at`."""

    number: int
    output: Tensor
    at: Indices


def overwritable(
    wanted: Iterable[Pair],
    results: Sequence[Stored],
    uses: Sequence[tuple[Node, Indices]],
    nodes: Sequence[Node],
    leaves: Mapping[Node, int],
    elsewhere: frozenset[Node],
) -> tuple[Pair, ...]:
    """The wanted pairs of this nest, whose values must all be computed before any is stored.

    `uses` are reads of leaves in the nest, made of `nodes` (each behind its operands); `elsewhere`
    the leaves that other nests read.
    """
    elsewhere |= _moved(nodes)
    parameters = {number: node for node, number in leaves.items()}
    stored = {result.number: result for result in results}
    return tuple(
        (source, target)
        for source, target in sorted(wanted)
        if target in stored
        and parameters[source] not in elsewhere
        and _is_read_in_place(parameters[source], stored[target], uses)
    )


def _moved(nodes: Sequence[Node]) -> frozenset[Node]:
    """The nodes that other operators are computed of than the `_TRACED` ones."""
    moved: set[Node] = set()
    for node in reversed(nodes):
        if node in moved or node.op not in _TRACED:
            moved.update(node.operands)
    return frozenset(moved)


def _is_read_in_place(
    parameter: Node, result: Stored, uses: Sequence[tuple[Node, Indices]]
) -> bool:
    if parameter.tensor != result.output:
        return False
    place = linear(result.at, result.output.strides)
    return all(
        linear(at, parameter.tensor.strides) - place == ZERO
        for node, at in uses
        if node is parameter
    )
