"""Starts workers as processes of their own and reads what they say.

In: a task of `tests/cache/worker.py` and its arguments. Out: its answer and what it logged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.source_tree import ROOT

LIMIT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """`code` is negative for a signal; `value` is what the task returned, None if it did not."""

    code: int
    value: Any
    log: str

    @property
    def warnings(self) -> list[str]:
        """The first line of each: those that say where, why and what to do are indented."""
        return [line for line in self.log.splitlines() if line and not line.startswith("  ")]


def start(
    task: str, root: Path, *arguments: object, before: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """`before` is put in front of the command line, `unshare` say."""
    command = [*before, sys.executable, "-W", "error", "-m", "tests.cache.worker", task, str(root)]
    return subprocess.Popen(
        [*command, *(str(argument) for argument in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str]) -> Answer:
    try:
        output, log = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        process.kill()
    return Answer(process.returncode, json.loads(output) if output.strip() else None, log)


def run(task: str, root: Path, *arguments: object, before: Sequence[str] = ()) -> Answer:
    return finish(start(task, root, *arguments, before=before))
