"""Compiles one function of the math library as a loop over arrays and runs it in this process."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

from neuron_compile.neff.codegen import math_table
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.value import Val, bits_of
from neuron_compile.neff.target import Target, make

DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
TARGETS = tuple(
    target
    for target in (make("x86-64-v4"), make("x86-64-v3"), make("aarch64"))
    if target.supports_on_host()
)
BINARY = ("atan2", "fmod", "pow")


@dataclass(frozen=True, slots=True)
class Form:
    """How a kernel computes: for which target, element type and lanes (0: scalar)."""

    target: Target
    elem: str
    lanes: int


def forms(elem: str) -> list[Form]:
    """A scalar form and, for each target of this machine, one native vector."""
    vectors = [Form(t, elem, 8 * t.vector_bytes // bits_of(elem)) for t in TARGETS]
    return [*vectors, Form(TARGETS[0], elem, 0)]


def kernel_text(name: str, form: Form, symbol: str = "kernel") -> str:
    """The text of `@symbol(pointers, begin, end)`: the last pointer gets f of the other arrays."""
    e = Emitter(form.target.vector_bytes // 4, frozenset((form.target.isa, *form.target.features)))
    operands = 2 if name in BINARY else 1
    pointers = [e.pointer_argument("%ptrs", i) for i in range(operands + 1)]

    def body(i: Val, _: tuple[Val, ...]) -> tuple[Val, ...]:
        values = [
            e.load(e.gep(p, i, form.elem), form.elem, form.lanes) for p in pointers[:operands]
        ]
        result = getattr(math_table, name)(e, *values)
        e.store(result, e.gep(pointers[-1], i, form.elem))
        return ()

    begin, end = (Val(argument, "i64", 0, 0, 0) for argument in ("%begin", "%end"))
    e.loop(begin, end, max(1, form.lanes), body)
    attributes = form.target.llvm_attributes()
    return (
        e.function(f"{symbol}_inner", attributes)
        + f"llvm.func @{symbol}(%p: !llvm.ptr, %b: i64, %e: i64) attributes {{{attributes}}} {{\n"
        f"llvm.call @{symbol}_inner(%p, %b, %e) : (!llvm.ptr, i64, i64) -> ()\n"
        "llvm.return\n}\n"
    )


@functools.cache
def _context() -> ir.Context:
    return ir.Context()


@functools.cache
def _engine(name: str, form: Form) -> tuple[ExecutionEngine, Callable[[int], None]]:
    with _context():
        module = ir.Module.parse(kernel_text(name, form))
        PassManager.parse("builtin.module(convert-scf-to-cf,convert-to-llvm)").run(module.operation)
        engine = ExecutionEngine(module, opt_level=0)
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("kernel"))
    return engine, entry  # the engine owns the code


class Kernel:
    """f over flat arrays of one length, which is rounded up to whole vectors inside."""

    def __init__(self, name: str, form: Form) -> None:
        self.dtype = DTYPES[form.elem]
        self.step = max(1, form.lanes)
        _, self.entry = _engine(name, form)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        size = arrays[0].size
        buffers = [np.zeros(-(-size // self.step) * self.step, self.dtype) for _ in arrays]
        for buffer, array in zip(buffers, arrays, strict=True):
            buffer[:size] = array
        buffers.append(np.empty_like(buffers[0]))
        self.bind(buffers)()
        return buffers[-1][:size]

    def bind(self, buffers: list[np.ndarray]) -> Callable[[], None]:
        """A call on contiguous buffers, a multiple of `step` long; the result's comes last."""
        table = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
        values = [
            ctypes.c_void_p(ctypes.addressof(table)),
            ctypes.c_int64(0),
            ctypes.c_int64(buffers[0].size),
        ]
        packed = (ctypes.c_void_p * 3)(*[ctypes.addressof(v) for v in values])

        def call(_keep: object = (buffers, table, values)) -> None:
            self.entry(ctypes.addressof(packed))

        return call
