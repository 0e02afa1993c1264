"""Which generator makes a group's kernels.

In: a `Group`. Out: its kernels. A pattern's own generator says None where it does not apply;
whatever can be pulled has a loop kernel.
"""

from __future__ import annotations

from collections.abc import Collection

from neuron_compile.neff.codegen.attention import attention_kernels
from neuron_compile.neff.codegen.contract import contract_kernels
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import loop_kernels
from neuron_compile.neff.codegen.macs import CONTRACTIONS
from neuron_compile.neff.codegen.overwrite import Pair
from neuron_compile.neff.codegen.program import Group
from neuron_compile.neff.codegen.split import needs_split, split_kernels
from neuron_compile.neff.codegen.supported import check_supported
from neuron_compile.neff.target import Target


def generate(group: Group, target: Target, wanted: Collection[Pair] = ()) -> list[Kernel]:
    """Kernels that together compute all results of the group.

    `wanted` are pairs (parameter, result) of pointers that callers would like to be the same
    memory; see `Kernel.overwrites`.
    """
    check_supported(group)
    if needs_split(group):
        return split_kernels(group, group.name, target)
    products = any(n.op in CONTRACTIONS for n in group.nodes())
    if group.kind == "contract" and products:
        return contract_kernels(group, group.name, target)
    if group.kind == "attention":
        return attention_kernels(group, group.name, target)
    return loop_kernels(group, group.name, target, wanted)
