"""neuron-compile: `torch.compile(model, backend="neuron")` into one self-contained NEFF file.

In: nothing; importing this package is light: no torch, no torch_mlir, no NumPy. Out: the public
names, each loaded from its module on first use.
"""

from __future__ import annotations

import importlib
import pathlib
from typing import TYPE_CHECKING, Any

from neuron_compile.errors import (
    CodegenError,
    ExecutionError,
    IndexRangeError,
    LoweringError,
    NeffFormatError,
    NeffTargetError,
    NeuronCompileError,
    OptionError,
    PassError,
    UnsupportedOpError,
)

if TYPE_CHECKING:
    from neuron_compile.backend import neuron
    from neuron_compile.counters import reset_stats, stats
    from neuron_compile.runtime.numpy_api import load

__version__ = "0.1.0"

# The stage folders (lowering, passes, neff, cache) stand beside this package in a checkout and
# inside it in a wheel. Python started in the checkout's root finds this folder first, so the search
# path of the package must reach the root too. It comes last: an installed copy wins.
_ROOT = pathlib.Path(__file__).resolve().parent.parent
if (_ROOT / "neff" / "target.py").is_file() and (_ROOT / "pyproject.toml").is_file():
    __path__.append(str(_ROOT))

# Public name -> module. No name here may also be the name of a submodule: importing the submodule
# would replace the function in this namespace (which is why stats() lives in `counters`).
_LAZY = {
    "neuron": "neuron_compile.backend",
    "stats": "neuron_compile.counters",
    "reset_stats": "neuron_compile.counters",
    "load": "neuron_compile.runtime.numpy_api",
}

__all__ = [
    "CodegenError",
    "ExecutionError",
    "IndexRangeError",
    "LoweringError",
    "NeffFormatError",
    "NeffTargetError",
    "NeuronCompileError",
    "OptionError",
    "PassError",
    "UnsupportedOpError",
    "__version__",
    "load",
    "neuron",
    "reset_stats",
    "stats",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
