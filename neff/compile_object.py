"""MLIR text to an ELF object file, with the MLIR and LLVM inside the torch-mlir wheel.

In: text in the llvm, scf, arith, math and vector dialects. Out: the bytes of a relocatable object.
Invariant: the text alone decides the bytes (nothing is optimised here: the emitter writes what the
optimiser would have found), and nothing is left behind in the file system.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

from neuron_compile.errors import CodegenError
from neuron_compile.neff.without_gil import lookup

_PIPELINE = "builtin.module(convert-scf-to-cf,convert-to-llvm)"

# LLVM turns some operations into calls that the text does not name. The JIT must find an address
# for them although nothing is ever run from it; the loader resolves the real ones.
_IMPLICIT_EXTERNALS = (
    "memcpy", "memmove", "memset",
    "fmodf", "fmod", "powf", "pow",
    "sinf", "sin", "cosf", "cos", "tanf", "tan", "expf", "exp", "exp2f", "exp2", "logf", "log",
    "log2f", "log2", "log10f", "log10", "sincosf", "sincos", "fmaf", "fma", "roundf", "round",
    "__truncsfhf2", "__truncdfhf2", "__extendhfsf2", "__truncsfbf2", "__truncdfbf2",
)  # fmt: skip
_NEVER_CALLED = ctypes.c_void_p(0x1000)


def compile_object(text: str, exports: Iterable[str], *, pic: bool = True) -> bytes:
    """Compile a module whose public functions are `exports`; functions without a body are external.

    `pic` selects position-independent code, which `link` needs. Raises CodegenError with MLIR's
    diagnostics if the text is malformed, or with the names LLVM could not compile.
    """
    with ir.Context() as context:
        # The passes run on one module: a thread pool per compile only costs its start-up.
        context.enable_multithreading(False)
        module = _lowered_to_llvm(text)
        found: list[str] = []
        handler = context.attach_diagnostic_handler(lambda d: _note(d, text, found))
        try:
            return _emit(module, tuple(exports), pic=pic)
        except CodegenError:
            raise
        except RuntimeError as error:
            raise _refused("LLVM", [*found, str(error)]) from error
        finally:
            handler.detach()


def compile_objects(
    modules: Sequence[tuple[str, Sequence[str]]], *, threads: int, pic: bool = True
) -> list[bytes]:
    """Compile several modules, given as (text, exports), at once; `link` joins the objects.

    Three quarters of the time is LLVM's, which does not hold the interpreter lock.
    """
    if len(modules) == 1:
        return [compile_object(*modules[0], pic=pic)]
    with ThreadPoolExecutor(min(threads, len(modules))) as pool:
        return list(pool.map(lambda module: compile_object(*module, pic=pic), modules))


def _lowered_to_llvm(text: str) -> ir.Module:
    try:
        module = ir.Module.parse(text)
        PassManager.parse(_PIPELINE).run(module.operation)
    except ir.MLIRError as error:
        found: list[str] = []
        for diagnostic in error.error_diagnostics:
            _note(diagnostic, text, found)
        raise _refused("MLIR", found) from error
    return module


def _note(diagnostic: ir.Diagnostic | ir.DiagnosticInfo, text: str, found: list[str]) -> bool:
    """Append a diagnostic, with the line of generated text that it points at."""
    found.append(str(diagnostic.message))
    # MLIR calls a parsed string "-"; any other file is the user's, for which there is no text here.
    position = re.match(r'loc\("-":(\d+):', str(diagnostic.location))
    if position:
        number = int(position[1])
        found.append(f"    line {number}: {text.splitlines()[number - 1].strip()}")
    return True


def _refused(who: str, found: list[str]) -> CodegenError:
    return CodegenError(
        f"{who} refused generated code",
        why="\n".join(found),
        remedy="this is a defect of the code generator; please report it with this message",
    )


def _declared_only(module: ir.Module) -> list[str]:
    return [
        ir.StringAttr(op.attributes["sym_name"]).value
        for op in module.body.operations
        if op.operation.name == "llvm.func" and not op.regions[0].blocks
    ]


def _emit(module: ir.Module, exports: tuple[str, ...], *, pic: bool) -> bytes:
    external = _declared_only(module)
    engine = ExecutionEngine(module, opt_level=0, enable_object_dump=True, enable_pic=pic)
    for name in dict.fromkeys((*external, *_IMPLICIT_EXTERNALS)):
        engine.raw_register_runtime(name, _NEVER_CALLED)
    missing = [name for name in exports if not lookup(engine, name)]
    if missing:
        raise CodegenError(
            f"LLVM made no code for {', '.join(missing)}",
            why="the module does not define it, or calls a function that it does not declare "
            "(LLVM prints the name on stderr)",
        )
    return _dumped(engine)


def _dumped(engine: Any) -> bytes:
    handle, path = tempfile.mkstemp(prefix="neuron-compile-", suffix=".o")
    os.close(handle)
    try:
        engine.dump_to_object_file(path)
        with open(path, "rb") as file:
            return file.read()
    finally:
        os.unlink(path)
