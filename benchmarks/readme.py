"""Writes the measured table of the README: `python -m benchmarks.readme RECORD`.

In: the JSON record of a run. Out: the README with the lines between its two markers replaced.
Invariant: the table says what the record says, with machine, versions and what was missed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLUMNS = (
    *("case", "neuron", "eager", "inductor", "vs eager", "vs inductor"),
    *("our compile", "vs inductor's"),
)
README = Path(__file__).resolve().parent.parent / "README.md"


def table(record: dict[str, Any]) -> str:
    """Markdown: where it ran, one row per case, then start-up and overhead."""
    machine, versions = record["machine"], record["versions"]
    where = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['vectors']}, "
        f"{machine['threads']} threads; torch {versions['torch']}, torch-mlir "
        f"{versions['torch-mlir']}; {versions['c++']}; {record['time'][:10]}. Medians of one run, "
        "competitors in turns in one process; above 1x we are so many times faster."
    )
    lines = [
        where,
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * (len(COLUMNS) - 1)}",
        *(_case(case) for case in record["cases"]),
    ]
    for start in record["startup"]:
        lines += ["", _start(start)]
    if record["overhead"]:
        lines += ["", _overhead(record["overhead"]["timing"])]
    return "\n".join(lines)


def replaced(readme: str, content: str) -> str:
    """The README with `content` between its markers."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{content}\n{END}{rest.split(END)[1]}"


def _case(case: dict[str, Any]) -> str:
    timing, first = case["timing"], case["first"]
    ours = timing["neuron"]["median"]
    cells = [case["name"]]
    cells += [_milliseconds(timing.get(name)) for name in ("neuron", "eager", "inductor")]
    cells += [_ratio(timing.get(name), ours) for name in ("eager", "inductor")]
    backend = first["neuron"]["backend"]
    cells += [f"{backend:.2f} s"]
    cells += [f"{first['inductor']['backend'] / backend:.1f}x" if "inductor" in first else ""]
    return f"| {' | '.join(cells)} |"


def _start(start: dict[str, Any]) -> str:
    text = (
        f"First call of {start['case']} in a new process, {start['competitor']}: "
        f"{start['cold']:.2f} s with an empty cache, {start['warm']:.2f} s with a filled one"
    )
    if start["files"]:
        each = start["load"] * 1e3 / start["files"]
        text += f", of it {each:.1f} ms to look up, read and load each NEFF"
    return text + "."


def _overhead(timing: dict[str, Any]) -> str:
    micro = {name: value["median"] * 1e6 for name, value in timing.items()}
    others = f", inductor {micro['inductor']:.1f} us" if "inductor" in micro else ""
    return (
        f"A call of a graph of ten inputs takes {micro['neuron']:.1f} us (eager "
        f"{micro['eager']:.1f} us{others}); {micro['dynamo']:.1f} us of it are Dynamo's guards."
    )


def _milliseconds(timing: dict[str, float] | None) -> str:
    return f"{timing['median'] * 1e3:.2f} ms" if timing else ""


def _ratio(timing: dict[str, float] | None, ours: float) -> str:
    return f"{timing['median'] / ours:.2f}x" if timing else ""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    made = table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    README.write_text(replaced(README.read_text(encoding="utf-8"), made), encoding="utf-8")
