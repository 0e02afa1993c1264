"""StableHLO module in, StableHLO module of outlined fusion groups out: `run_pipeline`.

In: one public `@main` of static tensors. Out, in place: `@main` only calls private functions that
carry `neuron.kind`, in schedule order. Invariant: what `@main` computes does not change.
"""

from __future__ import annotations

from neuron_compile.passes.pipeline import PIPELINE, Pass, run_pipeline

__all__ = ["PIPELINE", "Pass", "run_pipeline"]
