"""Measures one case: first calls, agreement with eager, then interleaved timing.

In: a case and the competitors. Out: a frozen `Measured`. Invariant: competitors alternate in
changing order within one process, so that drifts of the machine meet all of them.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import neuron_compile
from benchmarks import competitors
from benchmarks.case import Case, Compile, Work
from benchmarks.competitors import EAGER, INDUCTOR, NEURON

SAMPLE_SECONDS = 20e-3  # a sample is as many calls as fit; then neither clock nor cold caches count
ROUNDS = (5, 500)  # at least, at most


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: median, quartiles, number of samples."""

    median: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, slots=True)
class FirstCall:
    """Seconds of the call that compiles: as a whole, and in the backend proper."""

    whole: float
    backend: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All about one case; keys are names of competitors."""

    name: str
    timing: dict[str, Timing]
    first: dict[str, FirstCall]
    difference: dict[str, float]
    stages: dict[str, float]
    kernels: int
    launches: float

    def ratio(self, other: str) -> float | None:
        """How many times faster we are than `other`, by medians; None if it did not take part."""
        if other not in self.timing:
            return None
        return self.timing[other].median / self.timing[NEURON].median

    def compile_ratio(self) -> float | None:
        """How many times faster our stages are than TorchInductor's on the same graphs."""
        if INDUCTOR not in self.first or not self.first[NEURON].backend:
            return None
        return self.first[INDUCTOR].backend / self.first[NEURON].backend


class DisagreementError(AssertionError):
    """A competitor's result is not eager's; its time would mean nothing."""


def measure(case: Case, seconds: float) -> Measured:
    """Run the case for about `seconds` per competitor. Raises DisagreementError."""
    torch.manual_seed(0)
    competitors.reset()
    build = case.prepare()
    with torch.set_grad_enabled(case.training):
        works: dict[str, Work] = {}
        first: dict[str, FirstCall] = {}
        for name, compiler in competitors.compilers().items():
            works[name], first[name] = _first_call(name, build, compiler)
        difference = _differences(case, works)
        stats = neuron_compile.stats()
        launches = _launches(works[NEURON])
        timing = interleaved({name: work.run for name, work in works.items()}, seconds)
    del first[EAGER]
    return Measured(
        case.name, timing, first, difference, stats["seconds"], stats["kernels"], launches
    )


def _first_call(
    name: str, build: Callable[[Compile], Work], compiler: Compile
) -> tuple[Work, FirstCall]:
    before = competitors.backend_seconds(name)
    work = build(compiler)
    start = time.perf_counter()
    work.check()
    whole = time.perf_counter() - start
    return work, FirstCall(whole, competitors.backend_seconds(name) - before)


def _differences(case: Case, works: dict[str, Work]) -> dict[str, float]:
    expected = works[EAGER].check()
    found = {}
    for name, work in works.items():
        if name == EAGER:
            continue
        pairs = zip(work.check(), expected, strict=True)
        found[name] = worst = max((_difference(*pair) for pair in pairs), default=0.0)
        if worst > case.tolerance:
            raise DisagreementError(f"{case.name}: {name} differs from eager by {worst:.1e}")
    return found


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference relative to the largest value; infinite where one is not a number."""
    scale = max(float(theirs.abs().max()), 1e-6)
    return float(((ours - theirs).abs().max() / scale).nan_to_num(math.inf))


def _launches(work: Work) -> float:
    before = neuron_compile.stats()["launches"]
    work.run()
    return neuron_compile.stats()["launches"] - before


def interleaved(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Timing]:
    """Time every function, in turns, for about `seconds` each."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    calls = {name: _calls_per_sample(run) for name, run in runs.items()}
    order = list(runs)
    end = time.perf_counter() + seconds * len(runs)
    collecting = gc.isenabled()
    gc.disable()
    try:
        while len(samples[EAGER]) < ROUNDS[0] or (
            time.perf_counter() < end and len(samples[EAGER]) < ROUNDS[1]
        ):
            for name in order:
                samples[name].append(_sample(runs[name], calls[name]))
            order = order[1:] + order[:1]
    finally:
        if collecting:
            gc.enable()
    return {name: _summary(values) for name, values in samples.items()}


def _calls_per_sample(run: Callable[[], Any]) -> int:
    for _ in range(3):
        run()
    return max(1, int(SAMPLE_SECONDS / max(_sample(run, 1), 1e-7)))


def _sample(run: Callable[[], Any], calls: int) -> float:
    if calls > 1:
        run()  # what the competitor before left in the caches is not this one's fault
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _summary(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4)
    return Timing(median, low, high, len(values))
