"""Outputs that may be written over the inputs they are new values of.

In: a program. Out: pairs (output, input) that a caller may give the same memory. A scatter changes
few elements of a large tensor (a cache of keys and values); where it is handed its operand's own
memory, the copy before it is left out (`Kernel.copies`).
"""

from __future__ import annotations

from collections.abc import Sequence

from neuron_compile.neff.codegen.module import Program
from neuron_compile.neff.codegen.program import Group


def shareable(program: Program, checks: Sequence[int] = ()) -> tuple[tuple[int, int], ...]:
    """Pairs of which nothing reads the input after, or while, the output is written.

    Nothing is written in place before the last of the outputs `checks` is known.
    """
    wanted = {program.outputs[i] for i in checks}
    checked = [t for t, c in enumerate(program.calls) if not wanted.isdisjoint(c.results)]
    made = {v: (time, call) for time, call in enumerate(program.calls) for v in call.results}
    pairs: list[tuple[int, int]] = []
    for number, value in enumerate(program.outputs):
        time, call = made[value]
        position = scattered_parameter(program.groups[call.group], call.results.index(value))
        if position is None or (checked and time <= checked[-1]):
            continue
        source = call.operands[position]
        later = (c.operands for c in program.calls[time + 1 :])
        if (
            source < program.inputs
            and call.operands.count(source) == 1
            and not any(source in operands for operands in later)
            and program.tensors[source] == program.tensors[value]
        ):
            pairs.append((number, source))
    return tuple(pairs)


def scattered_parameter(group: Group, result: int) -> int | None:
    """The parameter that a result repeats but for some elements, if nothing else reads it."""
    node = group.results[result]
    if node.op != "stablehlo.scatter" or len(node.operands) != 3:
        return None
    operand = node.operands[0]
    users = sum(n.operands.count(operand) for n in group.nodes())
    if operand.op != "parameter" or users != 1 or operand in group.results:
        return None
    if group.outputs[result] != operand.tensor:
        return None
    return group.parameters.index(operand)
