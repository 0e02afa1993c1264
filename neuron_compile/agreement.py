"""Does a program take and give the buffers that its calls will pass?

In: the plan of a NEFF, which may come from a file, and the buffers of the graph it stands for. Out:
the first difference in words, or nothing. Invariant: where there is none, no buffer that a call
passes is smaller than what the program reads or writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx

from neuron_compile.call_plan import Buffer
from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.schema import HostPlan, Neff, TensorSpec, span_bytes

_Kinds = list[tuple[str, int]]  # element type and bytes of each buffer

# A program sees the parts of a complex number side by side, as one more dimension.
_PART = {"complex64": "float32", "complex128": "float64"}


def disagreement(host: HostPlan, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
    """What differs first in number, element types or sizes; empty if nothing does."""
    given = host.inputs[: len(host.inputs) - host.uses_random]
    return _difference("input", _program_kinds(given), _call_kinds(inputs)) or _difference(
        "output", _program_kinds(host.outputs), _call_kinds(outputs)
    )


def require_agreement(neff: Neff, graph: torch.fx.GraphModule) -> None:
    """Raise NeffFormatError if the NEFF cannot have been made of this graph."""
    inputs = [_buffer(node) for node in graph.graph.find_nodes(op="placeholder")]
    computed = list(graph.graph.output_node().args[0])  # type: ignore[arg-type]
    # Behind the outputs the graph computes the checks, which no call has buffers for.
    outputs = [_buffer(node) for node in computed[: len(computed) - len(neff.plan.checks)]]
    found = disagreement(neff.plan, inputs, outputs)
    if found:
        raise NeffFormatError(f"the NEFF is not one of this graph: {found}")


def _buffer(node: torch.fx.Node) -> Buffer:
    value = node.meta["val"]
    return Buffer(value.dtype, tuple(value.shape), value.stride())


def _program_kinds(specs: Sequence[TensorSpec]) -> _Kinds:
    return [(_PART.get(spec.dtype, spec.dtype), spec.nbytes) for spec in specs]


def _call_kinds(buffers: Sequence[Buffer]) -> _Kinds:
    names = [str(buffer.dtype).removeprefix("torch.") for buffer in buffers]
    return [
        (_PART.get(name, name), span_bytes(name, buffer.size, buffer.stride))
        for name, buffer in zip(names, buffers, strict=True)
    ]


def _difference(what: str, program: _Kinds, call: _Kinds) -> str:
    if len(program) != len(call):
        return f"it has {len(program)} {what}s and the call {len(call)}"
    for i, (ours, theirs) in enumerate(zip(program, call, strict=True)):
        if ours != theirs:
            return (
                f"its {what} {i} is {ours[0]} in {ours[1]} bytes and that of the call "
                f"{theirs[0]} in {theirs[1]}"
            )
    return ""
