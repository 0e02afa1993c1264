"""Documents that show code or its output: the code runs, and the output is what it gives today."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import readme
from benchmarks.cases import CASES
from neuron_compile.environment import KNOBS as VARIABLES
from neuron_compile.options import KNOBS as OPTIONS
from tests.source_tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def python(*arguments: str | Path, cwd: Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_NEURONX")}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_code_in_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    printed = python(script, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert "'compiles': 2" in printed


def test_the_readme_names_every_option_and_variable() -> None:
    rows = set(re.findall(r"^\| `([A-Za-z_]+)` \|", README, flags=re.MULTILINE))
    expected = set(OPTIONS) | {knob.name for knob in VARIABLES.values()}
    assert rows == expected


def test_the_measured_table_is_that_of_the_record() -> None:
    record = json.loads((ROOT / "benchmarks" / "record.json").read_text(encoding="utf-8"))
    names = {case["name"] for case in record["cases"]}
    assert names
    assert names <= set(CASES)
    assert readme.replaced(README, readme.table(record)) == README, "run `make bench-record`"


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/decisions.md"]
)
def test_links_and_files_exist(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    named = re.findall(r"`((?:[a-z_.]+/)+[\w.-]*)`", text)
    here = (ROOT / name).parent  # links are relative to the page, names to the repository
    missing = [target for target in linked if not (here / target).exists()]
    missing += [t for t in named if not t.startswith("./") and not (ROOT / t).exists()]
    assert not missing


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the page shows code for x86-64")
def test_the_architecture_page_is_fresh(tmp_path: Path) -> None:
    program = "import generate_architecture as g, sys; sys.stdout.write(g.generate())"
    made = python(
        "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'docs')!r}); {program}", cwd=tmp_path
    )
    written = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert made == written, "docs/architecture.md is stale; run `make docs`"
