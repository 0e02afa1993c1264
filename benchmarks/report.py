"""Tables of ratios for people.

In: measurements. Out: rich tables. A ratio above one says how many times faster we are.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.competitors import EAGER, INDUCTOR, NEURON, missing_inductor
from benchmarks.overhead import Overhead
from benchmarks.runner import Measured
from benchmarks.startup import Startup


def speed(cases: Sequence[Measured]) -> Table:
    """Time per call and ratios."""
    table = _table(
        "Time per call (median; more than 1x: we are faster)",
        "case",
        "neuron",
        "eager",
        "inductor",
        "vs eager",
        "vs inductor",
        "kernels",
        "launches",
    )
    for case in cases:
        table.add_row(
            case.name,
            *(_milliseconds(case, name) for name in (NEURON, EAGER, INDUCTOR)),
            _ratio(case.ratio(EAGER)),
            _ratio(case.ratio(INDUCTOR)),
            str(case.kernels),
            f"{case.launches:g}",
        )
    return table


def compiling(cases: Sequence[Measured]) -> Table:
    """Cold compile: the whole first call, and the backends alone."""
    table = _table(
        "Cold compile, seconds",
        "case",
        "first call",
        "inductor's",
        "our stages",
        "inductor's",
        "vs inductor",
        "lower",
        "passes",
        "build",
    )
    for case in cases:
        ours, theirs = case.first[NEURON], case.first.get(INDUCTOR)
        table.add_row(
            case.name,
            f"{ours.whole:.2f}",
            f"{theirs.whole:.2f}" if theirs else missing_inductor(),
            f"{ours.backend:.3f}",
            f"{theirs.backend:.2f}" if theirs else "",
            _ratio(case.compile_ratio()),
            *(f"{case.stages[stage]:.3f}" for stage in ("lower", "passes", "build")),
        )
    return table


def starting(starts: Sequence[Startup]) -> Table:
    """First call in a new process."""
    table = _table(
        "First call in a new process, seconds",
        "case",
        "backend",
        "cold",
        "warm",
        "of it backend",
        "NEFFs",
        "ms per NEFF",
    )
    for start in starts:
        per_file = f"{start.load * 1e3 / start.files:.2f}" if start.files else ""
        table.add_row(
            start.case,
            start.competitor,
            f"{start.cold:.2f}",
            f"{start.warm:.2f}",
            f"{start.warm_backend:.3f}" if start.warm_backend else "",
            str(start.files or ""),
            per_file,
        )
    return table


def overhead(measured: Overhead) -> Table:
    """Per call of a graph of ten small inputs."""
    table = _table(
        "Graph of ten inputs of 16 numbers, microseconds per call",
        *measured.timing,
        "we add to Dynamo",
    )
    table.add_row(
        *(f"{timing.median * 1e6:.1f}" for timing in measured.timing.values()),
        f"{measured.added * 1e6:.1f}",
    )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right")
    return table


def _milliseconds(case: Measured, name: str) -> str:
    timing = case.timing.get(name)
    return f"{timing.median * 1e3:.3f} ms" if timing else missing_inductor()


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
