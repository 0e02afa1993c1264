"""Environment variables: read anew each time, checked, named in errors."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from neuron_compile.environment import KNOBS, Environment, read
from neuron_compile.errors import OptionError


def test_nothing_set_means_the_defaults() -> None:
    assert read({}) == Environment()
    assert read({"TORCH_NEURONX_COMPILE_ONLY": ""}) == Environment()


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)]
)
def test_switches(text: str, value: bool) -> None:
    assert read({"TORCH_NEURONX_NEFF_DISABLE_CACHE": text}).disable_cache is value


def test_every_variable_reaches_its_field(tmp_path: Path) -> None:
    found = read(
        {
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "a"),
            "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": str(tmp_path / "b"),
            "TORCH_NEURONX_NEFF_DISABLE_CACHE": "1",
            "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT": "2.5",
            "TORCH_NEURONX_DEBUG_DIR": str(tmp_path / "c"),
            "TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS": "1",
            "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1",
            "TORCH_NEURONX_COMPILE_ONLY": "yes",
            "NEURON_COMPILE_TARGET": "x86-64-v3",
        }
    )
    assert found == Environment(
        cache_dir=tmp_path / "a",
        local_cache_dir=tmp_path / "b",
        disable_cache=True,
        lock_timeout=2.5,
        debug_dir=tmp_path / "c",
        preserve_artifacts=True,
        disable_fallback=True,
        compile_only=True,
        target="x86-64-v3",
    )
    assert len(KNOBS) == 9


def test_home_directory_is_expanded() -> None:
    assert read({"TORCH_NEURONX_DEBUG_DIR": "~/x"}).debug_dir == Path("~/x").expanduser()


def test_endless_wait_is_allowed() -> None:
    assert read({"TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT": "inf"}).lock_timeout == math.inf


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TORCH_NEURONX_NEFF_DISABLE_CACHE", "maybe"),
        ("TORCH_NEURONX_COMPILE_ONLY", "2"),
        ("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", "soon"),
        ("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", "-1"),
        ("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", "nan"),
    ],
)
def test_nonsense_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"environment variable {name} cannot be '{text}'"):
        read({name: text})


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OptionError, match="TORCH_NEURONX_NEFF_CACHE_DIR"):
        read({"TORCH_NEURONX_NEFF_CACHE_DIR": str(file)})


def test_a_target_that_cannot_be_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(OptionError, match="unknown target 'z80'") as error:
        read({"NEURON_COMPILE_TARGET": "z80"}).detect_target()
    assert error.value.where == "environment variable NEURON_COMPILE_TARGET"


def test_fallback_is_not_available_yet() -> None:
    with pytest.raises(OptionError, match="DISABLE_FALLBACK_EXECUTION=0 is not available yet"):
        read({"TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "0"})


@pytest.mark.parametrize(
    ("debug_dir", "preserve", "expected"),
    [
        (None, None, None),
        ("d", None, "d"),
        ("d", True, "d"),
        ("d", False, None),
        (None, True, "neuron_artifacts"),
        (None, False, None),
    ],
)
def test_where_artifacts_go(debug_dir, preserve, expected) -> None:
    environment = Environment(
        debug_dir=Path(debug_dir) if debug_dir else None, preserve_artifacts=preserve
    )
    assert environment.artifact_dir == (Path(expected) if expected else None)
