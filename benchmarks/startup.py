"""Warm start: how soon a new process has its first result when the cache is filled.

In: `python -m benchmarks.startup CASE BACKEND` runs one first call and prints its figures as JSON.
Out: `measure` starts such processes, one to fill the caches and some to profit from them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.competitors import NEURON

WARM_STARTS = 3


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds of the first call in a new process, everything imported: caches empty, then filled.

    `backend` is the part of the backend proper (TorchInductor does not tell when it hits); `load`
    our look-up and load of the NEFFs, with reading the files, and `files` how many they are.
    """

    case: str
    competitor: str
    cold: float
    warm: float
    warm_backend: float
    load: float
    files: int


def measure(case: str, competitor: str) -> Startup:
    """One cold and some warm starts of `case`, in caches of their own."""
    with tempfile.TemporaryDirectory() as folder:
        cold = _start(case, competitor, Path(folder))
        warm = [_start(case, competitor, Path(folder)) for _ in range(WARM_STARTS)]
    middle = {key: statistics.median(run[key] for run in warm) for key in warm[0]}
    return Startup(
        case,
        competitor,
        cold["whole"],
        middle["whole"],
        middle["backend"],
        middle["load"],
        int(middle["files"]),
    )


def _start(case: str, competitor: str, folder: Path) -> dict[str, float]:
    environment = os.environ | {
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(folder / NEURON),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    command = [sys.executable, "-m", "benchmarks.startup", case, competitor]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _child(case_name: str, competitor: str) -> dict[str, float]:
    import torch

    import neuron_compile
    from benchmarks import competitors
    from benchmarks.cases import CASES

    case = CASES[case_name]
    torch.manual_seed(0)
    with torch.set_grad_enabled(case.training):
        build = case.prepare()
        torch._dynamo.reset()  # imports Dynamo, which is no part of either backend
        work = build(competitors.compilers()[competitor])
        start = time.perf_counter()
        work.run()
        whole = time.perf_counter() - start
    stats = neuron_compile.stats()
    return {
        "whole": whole,
        "backend": competitors.backend_seconds(competitor),
        "load": stats["seconds"]["cache"] + stats["seconds"]["load"],
        "files": stats["disk_hits"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("competitor")
    arguments = parser.parse_args()
    print(json.dumps(_child(arguments.case, arguments.competitor)))
