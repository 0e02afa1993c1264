"""Environment variables, with the names and meanings of the public backend.

In: `os.environ`, read anew for each graph. Out: a frozen `Environment`. Invariant: a variable that
is set but makes no sense is an OptionError that names it; an empty variable counts as not set.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from neuron_compile.knobs import a_switch, a_text, checked, knob, knobs
from neuron_compile.neff.target import Target, detect
from neuron_compile.options import fallback_remedy, not_yet


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError("it must be the path of a directory")
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise ValueError("it must be the path of a directory, and this is none")
    return path


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or value < 0:
        raise ValueError("it must be a number of seconds, 0 or more")
    return value


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment asks for; see the fields' help texts."""

    cache_dir: Path | None = field(
        default=None,
        metadata=knob(
            "directory of the NEFF cache; default: the user's cache directory",
            name="TORCH_NEURONX_NEFF_CACHE_DIR",
            read=_path,
        ),
    )
    local_cache_dir: Path | None = field(
        default=None,
        metadata=knob(
            "directory of this host for the cache's lock files, when the cache lies on a network "
            "file system",
            name="TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",
            read=_path,
        ),
    )
    disable_cache: bool = field(
        default=False,
        metadata=knob(
            "compile every graph anew, neither read nor write the cache on disk",
            name="TORCH_NEURONX_NEFF_DISABLE_CACHE",
            read=a_switch,
        ),
    )
    lock_timeout: float = field(
        default=600.0,
        metadata=knob(
            "seconds to wait for another process that compiles the same graph",
            name="TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT",
            read=_seconds,
        ),
    )
    debug_dir: Path | None = field(
        default=None,
        metadata=knob(
            "directory for artifacts of every compilation (graphs, StableHLO, kernels, NEFFs)",
            name="TORCH_NEURONX_DEBUG_DIR",
            read=_path,
        ),
    )
    preserve_artifacts: bool | None = field(
        default=None,
        metadata=knob(
            "1: keep artifacts, in ./neuron_artifacts if no debug directory is named; 0: keep none",
            name="TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS",
            read=a_switch,
        ),
    )
    disable_fallback: bool = field(
        default=True,
        metadata=knob(
            "0: run what cannot be lowered in eager PyTorch (not available yet)",
            name="TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
            read=a_switch,
        ),
    )
    compile_only: bool = field(
        default=False,
        metadata=knob(
            "compile and cache, run nothing: calls return zeros of the right shape",
            name="TORCH_NEURONX_COMPILE_ONLY",
            read=a_switch,
        ),
    )
    target: str = field(
        default="native",
        metadata=knob(
            "instruction set to compile for, such as x86-64-v3; the option `target` goes before it",
            name="NEURON_COMPILE_TARGET",
            read=a_text,
            in_key=True,
        ),
    )

    @property
    def artifact_dir(self) -> Path | None:
        """Where artifacts of a compilation go; None: nowhere, which is the default."""
        if self.preserve_artifacts is False:
            return None
        if self.debug_dir is None and self.preserve_artifacts:
            return Path("neuron_artifacts")
        return self.debug_dir

    def detect_target(self) -> Target:
        """The target asked for here. Raises as `detect` does, and names the variable."""
        return detect(self.target, where=f"environment variable {KNOBS['target'].name}")


KNOBS = knobs(Environment)


def read(environ: Mapping[str, str] | None = None) -> Environment:
    """The environment of this moment. Raises OptionError for a value that makes no sense."""
    environ = os.environ if environ is None else environ
    values = {
        field: checked(knob, environ[knob.name], "environment variable")
        for field, knob in KNOBS.items()
        if environ.get(knob.name)
    }
    environment = Environment(**values)
    if not environment.disable_fallback:
        raise not_yet("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0", fallback_remedy())
    return environment
