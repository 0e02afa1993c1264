"""MLIR's and LLVM's work with the interpreter lock released.

In: what the Python bindings of the torch-mlir wheel take. Out: what they give. The bindings hold
the lock for the whole of a parse, a pass pipeline or a code generation; MLIR's C API, which the
same library exports, is called through ctypes, which does not. Without it the bindings are used.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any

from torch_mlir import _mlir_libs, ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

# A handle of our own: result types set on ctypes.pythonapi would be seen by other packages.
_python = ctypes.PyDLL(None)
_python.PyCapsule_GetName.argtypes = (ctypes.py_object,)
_python.PyCapsule_GetName.restype = ctypes.c_char_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_python.PyCapsule_New.restype = ctypes.py_object


class _StringRef(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Handle(ctypes.Structure):
    """Any of the C API's objects: each is a structure around one pointer."""

    _fields_ = (("pointer", ctypes.c_void_p),)


class _Result(ctypes.Structure):
    _fields_ = (("succeeded", ctypes.c_int8),)


def lowered(text: str, pipeline: str) -> ir.Module:
    """Parse a module in the current context and run passes on it.

    Raises ir.MLIRError, with diagnostics: what the C API refuses is given to the bindings again.
    """
    passes = PassManager.parse(pipeline)
    native = _native()
    module = native and _lowered(native, text, passes)
    if not module:
        module = ir.Module.parse(text)
        passes.run(module.operation)
    return module


def _lowered(native: Any, text: str, passes: PassManager) -> ir.Module | None:
    context = ir.Context.current._CAPIPtr
    made = native.mlirModuleCreateParse(_handle(context), _string(text)).pointer
    if not made:
        return None
    module = ir.Module._CAPICreate(_python.PyCapsule_New(made, _module_capsule(context), None))
    operation = native.mlirModuleGetOperation(_Handle(made))
    done = native.mlirPassManagerRunOnOp(_handle(passes._CAPIPtr), operation).succeeded
    return module if done else None


def lookup(engine: ExecutionEngine, name: str) -> int:
    """Compile the engine's module if it is not yet; the address of `name`, 0 if there is none."""
    native = _native()
    if native is None:
        return engine.raw_lookup(name) or 0
    return native.mlirExecutionEngineLookupPacked(_handle(engine._CAPIPtr), _string(name)) or 0


@functools.cache
def _native() -> Any:
    """The library with the types of its functions set; None for an unusual build of the wheel."""
    library = pathlib.Path(_mlir_libs.__file__ or "").parent / "libTorchMLIRAggregateCAPI.so"
    try:
        native = ctypes.CDLL(str(library))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(native, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    needed = (ir.Context, ir.Module, PassManager, ExecutionEngine)
    return native if all(hasattr(c, "_CAPIPtr") for c in needed) else None


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "mlirModuleCreateParse": (_Handle, _Handle, _StringRef),
    "mlirModuleGetOperation": (_Handle, _Handle),
    "mlirPassManagerRunOnOp": (_Result, _Handle, _Handle),
    "mlirExecutionEngineLookupPacked": (ctypes.c_void_p, _Handle, _StringRef),
}


def _string(text: str) -> _StringRef:
    encoded = text.encode()
    return _StringRef(encoded, len(encoded))


def _handle(capsule: object) -> _Handle:
    name = _python.PyCapsule_GetName(capsule)
    return _Handle(_python.PyCapsule_GetPointer(capsule, ctypes.c_char_p(name)))


@functools.cache
def _module_name(context_name: bytes) -> ctypes.Array[ctypes.c_char]:
    """What a module's capsule is called; a capsule keeps the address of its name, so this stays."""
    return ctypes.create_string_buffer(context_name.replace(b"Context", b"Module"))


def _module_capsule(context: object) -> ctypes.Array[ctypes.c_char]:
    return _module_name(_python.PyCapsule_GetName(context))
