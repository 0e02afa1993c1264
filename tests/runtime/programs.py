"""NEFFs made from a few lines of MLIR, without the compiler's front: what the runtime is tested on.

In: sizes. Out: records and files. `scale` computes y = x * c + 3 through the arena, in parallel.
"""

from __future__ import annotations

import functools

import numpy as np

from neuron_compile.neff.compile_object import compile_object
from neuron_compile.neff.link import link
from neuron_compile.neff.schema import HostPlan, Image, Kernel, Neff, TensorSpec, tensor
from neuron_compile.neff.target import make
from neuron_compile.neff.writer import write

TARGET = make("x86-64-v3")

_SCALE = """module {{
llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_get_num_threads() -> i32
llvm.func @memcpy(!llvm.ptr, !llvm.ptr, i64) -> !llvm.ptr
llvm.mlir.global internal constant @bias(3.0 : f32) : f32
llvm.func internal @body(%p: !llvm.ptr) attributes {{{attributes}}} {{
  %thread = llvm.call @omp_get_thread_num() : () -> i32
  %threads = llvm.call @omp_get_num_threads() : () -> i32
  %t = llvm.sext %thread : i32 to i64
  %n = llvm.sext %threads : i32 to i64
  %count = llvm.mlir.constant({count} : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %next = llvm.add %t, %one : i64
  %low = llvm.mul %t, %count : i64
  %high = llvm.mul %next, %count : i64
  %begin = llvm.sdiv %low, %n : i64
  %end = llvm.sdiv %high, %n : i64
  %y_at = llvm.getelementptr %p[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %c_at = llvm.getelementptr %p[2] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %arena_at = llvm.getelementptr %p[3] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %y = llvm.load %y_at : !llvm.ptr -> !llvm.ptr
  %c = llvm.load %c_at : !llvm.ptr -> !llvm.ptr
  %arena = llvm.load %arena_at : !llvm.ptr -> !llvm.ptr
  %factor = llvm.load %c : !llvm.ptr -> f32
  %bias_at = llvm.mlir.addressof @bias : !llvm.ptr
  %bias = llvm.load %bias_at : !llvm.ptr -> f32
  scf.for %i = %begin to %end step %one : i64 {{
    %from = llvm.getelementptr %arena[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %v = llvm.load %from : !llvm.ptr -> f32
    %scaled = llvm.fmul %v, %factor : f32
    %sum = llvm.fadd %scaled, %bias : f32
    %to = llvm.getelementptr %y[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %sum, %to : f32, !llvm.ptr
  }}
  llvm.return
}}
llvm.func @run(%p: !llvm.ptr) -> i64 attributes {{{attributes}}} {{
  %z = llvm.mlir.constant(0 : i32) : i32
  %bytes = llvm.mlir.constant({bytes} : i64) : i64
  %x = llvm.load %p : !llvm.ptr -> !llvm.ptr
  %arena_at = llvm.getelementptr %p[3] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %arena = llvm.load %arena_at : !llvm.ptr -> !llvm.ptr
  %same = llvm.call @memcpy(%arena, %x, %bytes) : (!llvm.ptr, !llvm.ptr, i64) -> !llvm.ptr
  %f = llvm.mlir.addressof @body : !llvm.ptr
  llvm.call @GOMP_parallel(%f, %p, %z, %z) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  %done = llvm.mlir.constant(0 : i64) : i64
  llvm.return %done : i64
}}
}}"""

# Copies `bytes` from buffer 0 to buffer 1: any input to any output of equal size.
_COPY = """module {{
llvm.func @run(%p: !llvm.ptr) -> i64 attributes {{{attributes}}} {{
  %out_at = llvm.getelementptr %p[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %in = llvm.load %p : !llvm.ptr -> !llvm.ptr
  %out = llvm.load %out_at : !llvm.ptr -> !llvm.ptr
  %bytes = llvm.mlir.constant({bytes} : i64) : i64
  "llvm.intr.memcpy"(%out, %in, %bytes) <{{isVolatile = false}}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
  %done = llvm.mlir.constant(0 : i64) : i64
  llvm.return %done : i64
}}
}}"""


@functools.cache
def scale(count: int = 1000, factor: float = 2.0) -> Neff:
    """y = x * factor + 3 on float32[count]."""
    text = _SCALE.format(attributes=TARGET.llvm_attributes(), count=count, bytes=4 * count)
    plan = HostPlan(
        inputs=(tensor("x", "float32", (count,)),),
        outputs=(tensor("y", "float32", (count,)),),
        constants=(tensor("c", "float32", ()),),
        scratch_bytes=4 * count,
        uses_random=False,
        kernels=(Kernel("body", "loop", 1, ("model.py:7",)),),
    )
    return _neff(text, plan, (np.float32(factor).tobytes(),))


@functools.cache
def copy(source: TensorSpec, result: TensorSpec, *, uses_random: bool = False) -> Neff:
    """The bytes of an input as an output."""
    text = _COPY.format(attributes=TARGET.llvm_attributes(), bytes=source.nbytes)
    plan = HostPlan((source,), (result,), (), 0, uses_random, ())
    return _neff(text, plan, ())


def _neff(text: str, plan: HostPlan, constants: tuple[bytes, ...]) -> Neff:
    image: Image = link(compile_object(text, ["run"]), ["run"])
    return Neff("sample", TARGET, plan, image, constants, {}, b"", 0)


def file(neff: Neff) -> bytes:
    return write(neff)
