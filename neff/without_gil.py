"""LLVM's code generation with the interpreter lock released.

In: an ExecutionEngine of the torch-mlir wheel. Out: the address of a compiled function. The wheel's
Python binding holds the lock for the whole of code generation; MLIR's C API, which the same library
exports, is called through ctypes, which does not. Without it the binding is used.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Callable

from torch_mlir import _mlir_libs
from torch_mlir.execution_engine import ExecutionEngine

# A handle of our own: result types set on ctypes.pythonapi would be seen by other packages.
_python = ctypes.PyDLL(None)
_python.PyCapsule_GetName.argtypes = (ctypes.py_object,)
_python.PyCapsule_GetName.restype = ctypes.c_char_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p


class _StringRef(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Engine(ctypes.Structure):
    _fields_ = (("pointer", ctypes.c_void_p),)


_Lookup = Callable[[ExecutionEngine, str], int]


def lookup(engine: ExecutionEngine, name: str) -> int:
    """Compile the engine's module if it is not yet; the address of `name`, 0 if there is none."""
    return _lookup()(engine, name)


@functools.cache
def _lookup() -> _Lookup:
    library = pathlib.Path(_mlir_libs.__file__ or "").parent / "libTorchMLIRAggregateCAPI.so"
    try:
        native = ctypes.CDLL(str(library)).mlirExecutionEngineLookupPacked
    except (OSError, AttributeError):  # an unusual build of the wheel
        return _with_gil
    if not hasattr(ExecutionEngine, "_CAPIPtr"):
        return _with_gil
    native.argtypes = (_Engine, _StringRef)
    native.restype = ctypes.c_void_p

    def without_gil(engine: ExecutionEngine, name: str) -> int:
        encoded = name.encode()
        address = native(_Engine(_pointer(engine._CAPIPtr)), _StringRef(encoded, len(encoded)))
        return address or 0

    return without_gil


def _with_gil(engine: ExecutionEngine, name: str) -> int:
    return engine.raw_lookup(name) or 0


def _pointer(capsule: object) -> int | None:
    name = _python.PyCapsule_GetName(capsule)
    return _python.PyCapsule_GetPointer(capsule, ctypes.c_char_p(name))
