"""The ways the package may be found: wheel, editable, checkout alone, checkout over a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.source_tree import ROOT, modules

STAGES = ("lowering", "passes", "neff", "cache")

# Prints where each stage is found. No torch: finding packages needs none, and it is slow to import.
PROBE = """
import importlib.util, neuron_compile, sys
for stage in ("lowering", "passes", "neff", "cache", "runtime"):
    print(stage, importlib.util.find_spec("neuron_compile." + stage).origin)
import neuron_compile.cache.key, neuron_compile.neff.reader
assert not {"torch", "torch_mlir"} & set(sys.modules), "importing the package must be light"
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def bare_python(site: Path) -> tuple[str, ...]:
    """Python that sees this environment's packages, but not its own `neuron_compile`, if any.

    `-S` leaves out the .pth files through which an editable installation works; the packages are
    put behind `site` by hand.
    """
    libraries = sysconfig.get_paths()["purelib"]
    setup = f"import sys; sys.path[1:1] = [{str(site)!r}]; sys.path.append({libraries!r})\n"
    return sys.executable, "-S", "-c", setup + PROBE


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what packaging reads, so that no build directory appears in the real one."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for file in modules().values():
        target = copy / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, folder, cwd=checkout)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked: for a pure-Python wheel that is what installing does."""
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def origins(output: str) -> dict[str, Path]:
    return {line.split()[0]: Path(line.split()[1]) for line in output.splitlines()}


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = set()
    for name, file in modules().items():
        path = name.replace(".", "/")
        expected.add(f"{path}/__init__.py" if file.name == "__init__.py" else f"{path}.py")
    assert names == expected


def test_the_wheel_registers_the_backend_and_the_command(installed: Path) -> None:
    [info] = installed.glob("*.dist-info")
    text = (info / "entry_points.txt").read_text()
    assert "[torch_dynamo_backends]\nneuron = neuron_compile.backend:neuron" in text
    assert "[console_scripts]\nneuron-compile = neuron_compile.cli:main" in text
    metadata = (info / "METADATA").read_text()
    assert "License-Expression: Apache-2.0" in metadata
    assert (info / "licenses" / "LICENSE").is_file()


def test_wheel(installed: Path, tmp_path: Path) -> None:
    found = origins(run(*bare_python(installed), cwd=tmp_path))
    assert found == {
        stage: installed / "neuron_compile" / stage / "__init__.py"
        for stage in (*STAGES, "runtime")
    }


def test_editable(checkout: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    site = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
        ).strip()
    )
    build = "from setuptools import build_meta; import sys; build_meta.build_editable(sys.argv[1])"
    run(sys.executable, "-c", build, tmp_path, cwd=checkout)
    [built] = tmp_path.glob("*.whl")
    zipfile.ZipFile(built).extractall(site)
    (site / "environment.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    found = origins(run(python, "-c", PROBE, cwd=tmp_path))
    expected = {stage: checkout / stage / "__init__.py" for stage in STAGES}
    expected["runtime"] = checkout / "neuron_compile" / "runtime" / "__init__.py"
    assert found == expected


@pytest.mark.parametrize("with_wheel", [False, True])
def test_started_in_the_checkout(
    with_wheel: bool, checkout: Path, installed: Path, tmp_path: Path
) -> None:
    """Python puts the current folder first, where neuron_compile/ hides an installed one."""
    site = installed if with_wheel else tmp_path
    found = origins(run(*bare_python(site), cwd=checkout))
    expected = {stage: checkout / stage / "__init__.py" for stage in STAGES}
    expected["runtime"] = checkout / "neuron_compile" / "runtime" / "__init__.py"
    assert found == expected
