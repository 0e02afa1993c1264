"""Keeps files small enough for a reader to hold in the head, and free of machine-specific text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.source_tree import ROOT

LIMIT_BYTES = 25_000


def tracked(pattern: str) -> list[Path]:
    """Files git knows of, or in an unpacked archive without git every file below the root."""
    listed = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        return [f for f in ROOT.rglob(pattern) if ".venv" not in f.parts and "build" not in f.parts]
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_no_python_file_is_too_long() -> None:
    files = tracked("*.py")
    assert files
    too_long = {
        str(f.relative_to(ROOT)): f.stat().st_size for f in files if f.stat().st_size > LIMIT_BYTES
    }
    assert not too_long


def test_every_python_file_says_what_it_is() -> None:
    silent = [
        str(f.relative_to(ROOT))
        for f in tracked("*.py")
        if f.stat().st_size and not f.read_text(encoding="utf-8").startswith(('"""', 'r"""'))
    ]
    assert not silent


def test_no_path_of_a_machine_and_no_registry_host() -> None:
    words = [
        "/wor" + "k/",
        "/far" + "m/",
        "pypi" + r"\.org",
        "python" + "hosted",
        "/home/" + r"\w",
        "/roo" + "t/",
    ]
    pattern = re.compile("|".join(words))
    hits = []
    for file in tracked("*"):
        if file.suffix in {".neff", ".npy", ".png"}:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                hits.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not hits, "\n".join(hits)
