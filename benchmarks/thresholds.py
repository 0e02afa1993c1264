"""Compares what was measured with thresholds.toml.

In: measurements. Out: one sentence per threshold missed. Nothing to compare with is no failure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.competitors import EAGER, INDUCTOR, NEURON
from benchmarks.overhead import Overhead
from benchmarks.runner import Measured
from benchmarks.startup import Startup

FILE = Path(__file__).with_name("thresholds.toml")
Limits = dict[str, dict[str, float]]


def load(file: Path = FILE) -> Limits:
    """Case -> what is compared -> least ratio; `default` for all, `absolute` for the rest."""
    with file.open("rb") as stream:
        return tomllib.load(stream)


def misses(
    limits: Limits,
    cases: Sequence[Measured],
    starts: Sequence[Startup] = (),
    overhead: Overhead | None = None,
) -> list[str]:
    """Every threshold that was not reached, in words."""
    absolute = limits["absolute"]
    found = [text for case in cases for text in _case_misses(limits, case)]
    for start in starts:
        if start.competitor == NEURON and start.files:
            per_file = start.load * 1e3 / start.files
            if per_file > absolute["load_milliseconds_per_file"]:
                found.append(f"{start.case}: a disk hit takes {per_file:.1f} ms per file")
    if overhead and overhead.added * 1e6 > absolute["shim_microseconds"]:
        found.append(f"the shim adds {overhead.added * 1e6:.1f} us per call")
    return found


def _case_misses(limits: Limits, case: Measured) -> Iterator[str]:
    wanted = limits["default"] | limits.get(case.name, {})
    reached = {
        EAGER: case.ratio(EAGER),
        INDUCTOR: case.ratio(INDUCTOR),
        "compile": case.compile_ratio(),
    }
    for what, least in wanted.items():
        ratio = reached[what]
        if ratio is not None and ratio < least:
            yield f"{case.name}: {ratio:.2f}x against {what}, wanted {least:.2f}x"
