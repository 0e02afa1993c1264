"""The digest of our sources: the same wherever they lie, another for any change, and quick."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from neuron_compile.source_digest import STAGES, source_digest, versions
from tests.source_tree import ROOT

PRINT = (
    "import sys; from neuron_compile.source_digest import source_digest, versions;"
    "print(source_digest()); versions();"
    "print(sorted(m for m in sys.modules if m.startswith(('torch', 'neuron_compile.'))))"
)


def copy_checkout(destination: Path) -> Path:
    """The tree as in a checkout: stages beside the package."""
    skip = shutil.ignore_patterns("__pycache__")
    for folder in ("neuron_compile", *STAGES):
        shutil.copytree(ROOT / folder, destination / folder, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", destination)
    return destination


def copy_wheel(destination: Path) -> Path:
    """The tree as a wheel installs it: stages inside the package."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "neuron_compile", destination / "neuron_compile", ignore=skip)
    for stage in STAGES:
        shutil.copytree(ROOT / stage, destination / "neuron_compile" / stage, ignore=skip)
    return destination


def digest_in(root: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PRINT], cwd=root, capture_output=True, text=True, check=True
    )
    digest, modules = done.stdout.splitlines()
    return digest, modules


def test_a_checkout_and_a_wheel_agree_and_a_change_shows(tmp_path: Path) -> None:
    wheel = copy_wheel(tmp_path / "wheel")
    (tmp_path / "checkout").mkdir()
    checkout = copy_checkout(tmp_path / "checkout")
    digest, modules = digest_in(wheel)
    assert digest == digest_in(checkout)[0]
    assert "'torch" not in modules
    assert not any(f"neuron_compile.{stage}" in modules for stage in STAGES)
    with (checkout / "neff" / "target.py").open("a", encoding="utf-8") as file:
        file.write("# a comment\n")
    assert digest_in(checkout)[0] != digest


def test_a_new_a_renamed_and_a_moved_file_show(tmp_path: Path, monkeypatch) -> None:
    from neuron_compile import source_digest as module

    folders = {stage: tmp_path / stage for stage in STAGES}
    for folder in folders.values():
        folder.mkdir()
        (folder / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(module, "_stage_folder", folders.__getitem__)
    digest = source_digest.__wrapped__
    seen = [digest()]
    assert digest() == seen[0]
    (folders["passes"] / "b.py").write_text("")
    seen.append(digest())
    (folders["passes"] / "b.py").rename(folders["passes"] / "c.py")
    seen.append(digest())
    (folders["passes"] / "c.py").rename(folders["neff"] / "c.py")
    seen.append(digest())
    (folders["neff"] / "notes.txt").write_text("no source")
    assert digest() == seen[-1]
    assert len(set(seen)) == len(seen)


def test_an_installation_without_sources_is_seen(tmp_path: Path, monkeypatch) -> None:
    from neuron_compile import source_digest as module

    monkeypatch.setattr(module, "_stage_folder", lambda stage: tmp_path)
    with pytest.raises(RuntimeError, match="no Python sources"):
        source_digest.__wrapped__()


def test_an_unknown_version_is_seen(monkeypatch) -> None:
    import importlib.metadata

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(RuntimeError, match="version of torch is unknown"):
        versions.__wrapped__()


def test_it_is_computed_once() -> None:
    assert source_digest() is source_digest()
    assert dict(versions()).keys() == {"torch", "torch-mlir"}
