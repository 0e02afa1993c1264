"""Runs generated code in this process: an outlined module built, read back, mapped and called."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_mlir import ir

from neuron_compile.neff.build import build
from neuron_compile.neff.codegen.contraction import Contraction, contraction_of
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.reader import read
from neuron_compile.neff.target import Target, detect
from neuron_compile.runtime.executable import Executable
from tests import oracle
from tests.neff.codegen.guarded import guarded


def outlined(body: str, kind: str = "loop") -> str:
    """A module whose `@main` calls one group; `body` is `(%x: type, ..) -> (type, ..) { ... }`."""
    head, rest = body.split("{\n", 1)
    arguments, results = head.split("->")
    names = re.findall(r"%\w+", arguments)
    types = re.findall(r"%\w+: (tensor<[^>]*>)", arguments)
    outputs = re.findall(r"tensor<[^>]*>", results)
    values = ", ".join(f"%result#{i}" for i in range(len(outputs)))
    attributed = f'{head.rstrip()} attributes {{neuron.kind = "{kind}"}} {{\n{rest}'
    return f"""
func.func private @group{attributed}
func.func @main({arguments.strip()[1:-1]}) -> ({", ".join(outputs)}) {{
  %result:{len(outputs)} = func.call @group({", ".join(names)})
      : ({", ".join(types)}) -> ({", ".join(outputs)})
  return {values} : {", ".join(outputs)}
}}
"""


def plain(body: str) -> str:
    """The same function as `@main` alone, for the interpreter."""
    return "func.func @main" + re.sub(r" \{neuron\.strides = [^}]*\}", "", body)


def product_taken(
    pays: Callable[[Contraction, dict[Node, int], Target], bool], body: str, target: Target
) -> bool:
    """Whether `pays` holds for a role of the only product in the only group."""
    (group,) = read_program(oracle.parse(outlined(body, "contract"))).groups.values()
    (node,) = [n for n in group.nodes() if n.op == "stablehlo.dot_general"]
    leaves = {p: i for i, p in enumerate(group.parameters)}
    return any(pays(contraction_of(node, swap=s), leaves, target) for s in (False, True))


def built(text: str, target: Target | None = None, **options: Any) -> Executable:
    """An outlined module as a loaded program; `options` as for `build`."""
    module = oracle.parse(text)
    with module.context, ir.Location.unknown():
        data = build(
            module,
            target=target or detect(),
            name="test",
            provenance={},
            portable=b"none",
            **options,
        )
    return Executable(read(data))


def run(
    text: str, arrays: list[np.ndarray], target: Target | None = None, *, alignment: int = 1
) -> list[np.ndarray]:
    """Results of an outlined module, as the NEFF computes them. `alignment` is that of outputs:
    with 1 they touch the guards, whatever their size.
    """
    executable = built(text, target)
    results = [_run_between_guards(executable, arrays, end, alignment) for end in (True, False)]
    for behind, before in zip(*results, strict=True):
        np.testing.assert_array_equal(behind, before)
    return results[0]


def _run_between_guards(
    executable: Executable, arrays: list[np.ndarray], at_end: bool, alignment: int
) -> list[np.ndarray]:
    plan = executable.neff.plan
    with guarded(at_end=at_end) as memory:
        inputs = [memory.copy(np.asarray(a)) for a in arrays]
        outputs = [memory.buffer(o.nbytes, alignment) for o in plan.outputs]
        executable.run([a.ctypes.data for a in (*inputs, *outputs)])
        return [_view(o.copy(), s) for o, s in zip(outputs, plan.outputs, strict=True)]


_NUMPY = {"bool": np.bool_, "bfloat16": np.uint16}


def _view(memory: np.ndarray, spec) -> np.ndarray:
    dtype = np.dtype(_NUMPY.get(spec.dtype, spec.dtype))
    if not spec.nbytes:
        return np.zeros(spec.shape, dtype)
    strides = tuple(s * dtype.itemsize for s in spec.strides)
    return np.lib.stride_tricks.as_strided(memory[: spec.nbytes].view(dtype), spec.shape, strides)


def address_table(addresses: list[int]) -> ctypes.Array:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def agree(got: np.ndarray, want: np.ndarray, elem: str, tolerance: float = 1e-5) -> None:
    """Exact for integers and booleans; floats within `tolerance`, NaN and inf in their places."""
    assert got.shape == want.shape
    if elem == "bf16":
        got, want, tolerance = oracle.from_bf16(got), oracle.from_bf16(want), max(tolerance, 2e-2)
    if elem == "f16":
        tolerance = max(tolerance, 4e-3)
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got.astype(float), want.astype(float), tolerance, tolerance)


def check(
    body: str,
    kind: str = "loop",
    *,
    target: Target | None = None,
    tolerance: float = 1e-5,
    seed: int = 0,
    alignment: int = 1,
) -> None:
    """Generated code says what the interpreter says, on random inputs."""
    reference = oracle.parse(plain(body))
    arrays = oracle.random_inputs(reference, seed)
    want = oracle.evaluate(reference, arrays)
    got = run(outlined(body, kind), arrays, target, alignment=alignment)
    elems = re.findall(r"tensor<(?:\d+x)*(\w+)>", body.split("{\n", 1)[0].split("->")[1])
    for g, w, elem in zip(got, want, elems, strict=True):
        agree(g, w, elem, tolerance)
