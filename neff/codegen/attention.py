"""Kernels for `attention` groups: fused where a plan exists, else product, rows, product.

In: a `Group` dot -> row operations -> dot. Out: its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neuron_compile.neff.codegen.attention_kernel import AttentionKernel
from neuron_compile.neff.codegen.attention_plan import plan_attention
from neuron_compile.neff.codegen.contract import Scratch, product_kernels
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root, kernels_of
from neuron_compile.neff.codegen.macs import CONTRACTIONS
from neuron_compile.neff.codegen.program import Group, Node
from neuron_compile.neff.codegen.views import PERMUTATIONS
from neuron_compile.neff.target import Target


def attention_kernels(group: Group, name: str, target: Target) -> list[Kernel]:
    """One fused kernel, or the two products with the rows between them in scratch memory."""
    leaves = {p: i for i, p in enumerate(group.parameters)}
    first = len(leaves)
    outputs = zip(group.results, group.outputs, strict=True)
    roots = [Root(n, o, first + i) for i, (n, o) in enumerate(outputs) if o.size]
    if not roots:
        return []
    dots = [n for n in group.nodes() if n.op in CONTRACTIONS]
    plan = plan_attention(dots[0], dots[1], roots, leaves, target) if len(dots) == 2 else None
    if plan is not None:
        free_slot = first + len(group.outputs)
        return [AttentionKernel(plan, leaves, free_slot, name, target).kernel()]
    return _separately(dots, roots, leaves, name, target)


def _separately(
    dots: list[Node], roots: list[Root], leaves: Mapping[Node, int], name: str, target: Target
) -> list[Kernel]:
    """Each contraction stored to scratch memory in turn, then everything else."""
    known = dict(leaves)
    scratch = Scratch(max((r.number for r in roots), default=len(leaves) - 1) + 1, [])
    made: list[Kernel] = []
    for i, dot in enumerate(dots):
        for operand in dot.operands:
            if operand not in known and operand.op not in PERMUTATIONS:
                stored = scratch.root(operand, operand.tensor)
                made += kernels_of([stored], known, f"{name}_in{i}_{stored.number}", target)
                known[operand] = stored.number
        root = scratch.root(dot, dot.tensor)
        made += product_kernels(dot, [root], known, scratch, f"{name}_dot{i}", target)
        known[dot] = root.number
    made += kernels_of(roots, known, f"{name}_out", target)
    return [replace(made[0], scratch=tuple(scratch.sizes)), *made[1:]] if made else []
