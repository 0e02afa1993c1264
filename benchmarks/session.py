"""One run: the chosen cases in order, tables as they come, the record, the check.

In: options of the command line. Out: the exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch._dynamo.exc import BackendCompilerFailed

from benchmarks import competitors, overhead, record, report, runner, startup, thresholds
from benchmarks.case import Case, forward
from benchmarks.cases import CASES

STARTUP, OVERHEAD = "startup", "overhead"
STARTUP_CASE = "minilm-b32-t64"
NAMES = (*CASES, STARTUP, OVERHEAD)


def run(
    names: Sequence[str], seconds: float, threads: int | None, json: Path | None, check: bool
) -> int:
    """0; 1 for a case that failed or, with `check`, missed a threshold; 2 for an unknown name."""
    console = Console(width=130)
    unknown = set(names) - set(NAMES)
    if unknown:
        console.print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
        return 2
    chosen = names or NAMES
    if threads:
        torch.set_num_threads(threads)
    _warm_up()
    console.print(record.machine())
    cases, failures = _measure(console, [name for name in chosen if name in CASES], seconds)
    if cases:
        console.print(report.speed(cases), report.compiling(cases))
    starts = []
    if STARTUP in chosen:
        backends = [name for name in competitors.compilers() if name != competitors.EAGER]
        starts = [startup.measure(STARTUP_CASE, name) for name in backends]
        console.print(report.starting(starts))
    added = None
    if OVERHEAD in chosen:
        added = overhead.measure(seconds)
        console.print(report.overhead(added))
    if json:
        record.write(json, record.record(cases, starts, added))
    misses = thresholds.misses(thresholds.load(), cases, starts, added)
    return _judge(console, failures + misses, check or bool(failures))


def _measure(
    console: Console, names: Sequence[str], seconds: float
) -> tuple[list[runner.Measured], list[str]]:
    """Every case, and in words why some could not be measured."""
    cases, failures = [], []
    for name in names:
        console.print(f"running {name} ...")
        try:
            cases.append(runner.measure(CASES[name], seconds))
        except (BackendCompilerFailed, runner.DisagreementError) as error:
            failures.append(f"{name}: {error}")
    return cases, failures


def _warm_up() -> None:
    """Compile a trivial function with everybody: imports, headers and helper processes are paid."""
    build = Case("warm-up", lambda: forward(torch.relu, torch.randn(8))).prepare()
    with torch.no_grad():
        for compiler in competitors.compilers().values():
            build(compiler).run()


def _judge(console: Console, misses: list[str], fail: bool) -> int:
    if misses:
        console.print("Missed:", *misses, sep="\n  ")
        return 1 if fail else 0
    console.print("Every threshold that could be checked is reached.")
    return 0
