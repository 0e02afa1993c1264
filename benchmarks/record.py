"""The JSON record of one run: when, where, with which versions, and every figure.

In: what was measured. Out: a dictionary of plain values. Invariant: nothing in it names a user, a
host or a path.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.cpp_builder import get_cpp_compiler

import neuron_compile
from benchmarks import competitors
from benchmarks.overhead import Overhead
from benchmarks.runner import Measured
from benchmarks.startup import Startup

SCHEMA = 1
PACKAGES = ("torch", "torch-mlir", "numpy", "transformers")


def machine() -> dict[str, Any]:
    """Processor, cores usable by this process, threads, vector extensions as torch sees them."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Of the packages that matter, of Python, of the C++ compiler and of this checkout."""
    found = {"neuron-compile": neuron_compile.__version__}
    found |= {name: importlib.metadata.version(name) for name in PACKAGES}
    found["python"] = platform.python_version()
    found["c++"] = competitors.missing_inductor() or _first_line([get_cpp_compiler(), "--version"])
    found["commit"] = _first_line(["git", "rev-parse", "HEAD"])
    return found


def record(
    cases: Sequence[Measured], starts: Sequence[Startup], overhead: Overhead | None
) -> dict[str, Any]:
    """Everything about one run, ready for json.dumps; times in seconds."""
    return {
        "schema": SCHEMA,
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "cases": [dataclasses.asdict(case) for case in cases],
        "startup": [dataclasses.asdict(start) for start in starts],
        "overhead": dataclasses.asdict(overhead) if overhead else None,
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write the record as readable JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else "unknown"
