"""Refuses, before any code is made, a group with an operation that has no code.

In: a `Group`. Out: nothing, or a CodegenError that names all such operations and the user's lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuron_compile.errors import LEAVE_TO_PYTORCH, CodegenError
from neuron_compile.neff.codegen.elementwise import RULES
from neuron_compile.neff.codegen.program import Group, Node, postorder
from neuron_compile.neff.codegen.pulled import PULLED
from neuron_compile.neff.codegen.split import generator_of
from neuron_compile.neff.codegen.value import FLOAT_BITS, INT_BITS
from neuron_compile.neff.codegen.views import PERMUTATIONS

_LEAVES = ("parameter", "argument")
_CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
_REASONS = {
    **dict.fromkeys(_CONTROL, "control flow over tensors is not compiled"),
    "stablehlo.rng": "it has no seed; use rng_bit_generator",
    "stablehlo.fft": "Fourier transforms have no kernel",
    "stablehlo.custom_call": "what it calls is not known here",
}


def check_supported(group: Group) -> None:
    """Raises CodegenError."""
    wrong: dict[str, str] = {}
    for node in group.nodes():
        reason = _why_not(node)
        if reason:
            wrong.setdefault(node.op, reason)
    if wrong:
        raise CodegenError(
            f"no code can be made for {', '.join(wrong)}",
            where=", ".join(group.locations[:8]),
            why="; ".join(f"{op}: {reason}" for op, reason in wrong.items()),
            remedy=LEAVE_TO_PYTORCH,
        )


def _why_not(node: Node) -> str:
    """Why there is no code for this node, empty if there is."""
    if node.op in _REASONS:
        return _REASONS[node.op]
    known = (
        node.op in RULES
        or node.op in PERMUTATIONS
        or node.op in PULLED
        or node.op in _LEAVES
        or generator_of(node) is not None
    )
    if not known:
        return "it has no pull rule and no kernel"
    for tensor in (node.tensor, *(o.tensor for o in node.operands)):
        if tensor.signless not in FLOAT_BITS and tensor.signless not in INT_BITS:
            return f"elements of type {tensor.elem} have no kernel"
        if any(n < 0 for n in tensor.shape):
            return "its shape is not static"
    for inner in _inside(node):
        if inner.op not in RULES and inner.op not in (*_LEAVES, "stablehlo.constant"):
            return f"its body holds {inner.op}"
        if inner.op == "parameter":
            return "its body uses a value from outside"
    return ""


def _inside(node: Node) -> Iterator[Node]:
    for region in node.regions:
        yield from postorder(region.results, region.arguments.__contains__)
