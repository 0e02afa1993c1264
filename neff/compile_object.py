"""MLIR text to an ELF object file, with the MLIR and LLVM inside the torch-mlir wheel.

In: text in the llvm, scf, arith, math and vector dialects. Out: the bytes of a relocatable object.
Invariant: the text alone decides the bytes, whatever else is compiled before or beside it. Nothing
is optimised here: the emitter writes what the optimiser would have found.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from neuron_compile.errors import CodegenError
from neuron_compile.neff.without_gil import lookup, lowered

_PIPELINE = "builtin.module(convert-scf-to-cf,convert-to-llvm)"

# LLVM turns some operations into calls that the text does not name. The JIT must find an address
# for them although nothing is ever run from it; the loader resolves the real ones. It looks in this
# process by itself.
_IMPLICIT_EXTERNALS = (
    "memcpy", "memmove", "memset",
    "fmodf", "fmod", "powf", "pow",
    "sinf", "sin", "cosf", "cos", "tanf", "tan", "expf", "exp", "exp2f", "exp2", "logf", "log",
    "log2f", "log2", "log10f", "log10", "sincosf", "sincos", "fmaf", "fma", "roundf", "round",
    "__truncsfhf2", "__truncdfhf2", "__extendhfsf2", "__truncsfbf2", "__truncdfbf2",
)  # fmt: skip
_NEVER_CALLED = ctypes.c_void_p(0x1000)


class ObjectCompiler:
    """Compiles modules on threads of its own while the caller makes the next ones.

    LLVM does not hold the interpreter lock, and it takes most of the time. A context manager: what
    has not begun when an error leaves it is dropped.
    """

    def __init__(self, threads: int) -> None:
        self._contexts = threading.local()
        self._pool = ThreadPoolExecutor(threads, "neuron-compile", self._begin)
        self._made: list[Future[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, text: str, exports: Iterable[str]) -> None:
        """Compile as `compile_object` does, position-independent."""
        self._made.append(self._pool.submit(self._compile, text, tuple(exports)))

    def objects(self) -> list[bytes]:
        """All objects in the order of `add`. Raises the first CodegenError in this order."""
        return [made.result() for made in self._made]

    def _begin(self) -> None:
        self._contexts.own = _context()

    def _compile(self, text: str, exports: tuple[str, ...]) -> bytes:
        return _compile(self._contexts.own, text, exports, pic=True)


def compile_object(text: str, exports: Iterable[str], *, pic: bool = True) -> bytes:
    """Compile a module whose public functions are `exports`; functions without a body are external.

    `pic` selects position-independent code, which `link` needs. Raises CodegenError with MLIR's
    diagnostics if the text is malformed, or with the names LLVM could not compile.
    """
    return _compile(_context(), text, tuple(exports), pic=pic)


def _context() -> ir.Context:
    """For any number of modules in one thread: making one takes longer than a small module."""
    context = ir.Context()
    # The passes run on one module: a thread pool per compile only costs its start-up.
    context.enable_multithreading(False)
    return context


def _compile(context: ir.Context, text: str, exports: tuple[str, ...], *, pic: bool) -> bytes:
    with context:
        module = _lowered_to_llvm(text)
        found: list[str] = []
        handler = context.attach_diagnostic_handler(lambda d: _note(d, text, found))
        try:
            return _emit(module, exports, pic=pic)
        except CodegenError:
            raise
        except RuntimeError as error:
            raise _refused("LLVM", [*found, str(error)]) from error
        finally:
            handler.detach()


def _lowered_to_llvm(text: str) -> ir.Module:
    try:
        return lowered(text, _PIPELINE)
    except ir.MLIRError as error:
        found: list[str] = []
        for diagnostic in error.error_diagnostics:
            _note(diagnostic, text, found)
        raise _refused("MLIR", found) from error


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
    for name in dict.fromkeys((*external, *_not_in_this_process())):
        engine.raw_register_runtime(name, _NEVER_CALLED)
    missing = [name for name in exports if not lookup(engine, name)]
    if missing:
        raise CodegenError(
            f"LLVM made no code for {', '.join(missing)}",
            why="the module does not define it, or calls a function that it does not declare "
            "(LLVM prints the name on stderr)",
        )
    return _dumped(engine)


@functools.cache
def _not_in_this_process() -> tuple[str, ...]:
    process = ctypes.CDLL(None)
    return tuple(name for name in _IMPLICIT_EXTERNALS if not hasattr(process, name))


def _dumped(engine: ExecutionEngine) -> bytes:
    """The object, by way of a file in memory: to remove one from a disk can take milliseconds."""
    with open(os.memfd_create("neuron-compile"), "rb") as file:
        engine.dump_to_object_file(f"/proc/self/fd/{file.fileno()}")
        return file.read()
