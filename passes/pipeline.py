"""The pass pipeline: one literal tuple, read top to bottom.

In: a StableHLO module from `lowering`. Out, in place: `@main` calls outlined private groups with
`neuron.kind`. Invariant: every pass leaves a valid module that computes the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

# Imported for its effect: without it, the bindings take 20 times as long for each op.
import neuron_compile.passes.dialects  # noqa: F401
from neuron_compile.passes.canonicalize import canonicalize
from neuron_compile.passes.canonicalize_contractions import canonicalize_contractions
from neuron_compile.passes.fold_constants import fold_constants
from neuron_compile.passes.fold_indices import fold_indices
from neuron_compile.passes.fuse_groups import fuse_groups
from neuron_compile.passes.match_attention import match_attention
from neuron_compile.passes.outline import outline
from neuron_compile.passes.rematerialize import rematerialize
from neuron_compile.passes.schedule import schedule
from neuron_compile.passes.separate_outputs import separate_outputs
from neuron_compile.passes.simplify import simplify
from neuron_compile.passes.simplify_converts import simplify_converts
from neuron_compile.passes.sink_views import sink_views
from neuron_compile.passes.split_reductions import split_reductions
from neuron_compile.passes.unit import Unit


@dataclass(frozen=True, slots=True)
class Pass:
    """A name and a function that changes the unit in place."""

    name: str
    run: Callable[[Unit], None]


PIPELINE = (
    Pass("canonicalize", canonicalize),
    Pass("fold-indices", fold_indices),
    Pass("fold-constants", fold_constants),
    Pass("simplify-converts", simplify_converts),
    Pass("simplify", simplify),
    Pass("sink-views", sink_views),
    Pass("canonicalize-contractions", canonicalize_contractions),
    Pass("split-reductions", split_reductions),
    Pass("match-attention", match_attention),
    Pass("separate-outputs", separate_outputs),
    Pass("fuse-groups", fuse_groups),
    Pass("rematerialize", rematerialize),
    Pass("schedule", schedule),
    Pass("outline", outline),
)

Observer = Callable[[str, ir.Module], None]


def run_pipeline(module: ir.Module, *, observer: Observer | None = None) -> None:
    """Runs every pass on `module`, in place.

    `observer(name, module)` is called after each pass (printing, verifying and timing live there).
    Raises PassError for a module no pass can handle.
    """
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        for step in PIPELINE:
            step.run(unit)
            if observer is not None:
                observer(step.name, module)
