"""Multiply-accumulates of one run, as `hlo_stats.json` reports them."""

from __future__ import annotations

from math import prod

from neuron_compile.neff.codegen.module import Program
from neuron_compile.neff.codegen.program import Group
from neuron_compile.neff.codegen.reduction_specs import spec_of

CONTRACTIONS = ("stablehlo.dot_general", "stablehlo.convolution")


def group_macs(group: Group) -> int:
    """Result elements times reduced elements, over all contractions of a group."""
    return sum(
        n.tensor.size * prod(spec_of(n).extents) for n in group.nodes() if n.op in CONTRACTIONS
    )


def multiply_accumulates(program: Program) -> int:
    counts = {name: group_macs(group) for name, group in program.groups.items()}
    return sum(counts[call.group] for call in program.calls)
