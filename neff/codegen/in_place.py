"""Outputs that may be written over the inputs they are new values of.

In: a program, the pairs that its caller would like, and the kernels. Out: the pairs (output, input)
that a caller may give the same memory. There are two kinds. A scatter changes few elements of a
large tensor (a cache of keys and values); where it is handed its operand's own memory, the copy
before it is left out (`Kernel.copies`). A loop that reads the input only where it stores the output
is compiled so that both may be the same memory (`Kernel.overwrites`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.module import Call, Program
from neuron_compile.neff.codegen.program import Group

Pair = tuple[int, int]  # (output, input) of the program


def wanted_of_groups(program: Program, wanted: Iterable[Pair]) -> dict[str, set[tuple[int, int]]]:
    """Per group, the pointers (parameter, result) that the pairs in `wanted` would make equal."""
    found: dict[str, set[tuple[int, int]]] = {}
    for _, _, call, pointers in _candidates(program, wanted):
        found.setdefault(call.group, set()).add(pointers)
    return found


def shareable(
    program: Program,
    wanted: Iterable[Pair],
    kernels: Mapping[str, Sequence[Kernel]],
) -> tuple[Pair, ...]:
    """The wanted pairs of which nothing reads the input after, or while, the output is written.

    Nothing is written in place before the last check is known.
    """
    checks = set(program.checks)
    checking = [t for t, c in enumerate(program.calls) if checks.intersection(c.results)]
    first = checking[-1] + 1 if checking else 0
    return tuple(
        pair
        for pair, time, call, (parameter, result) in _candidates(program, wanted)
        if time >= first
        and (
            any((parameter, result) in kernel.overwrites for kernel in kernels[call.group])
            or _scattered(program.groups[call.group], result) == parameter
        )
    )


def _candidates(
    program: Program, wanted: Iterable[Pair]
) -> Iterator[tuple[Pair, int, Call, tuple[int, int]]]:
    """The wanted pairs whose input nothing reads later: with the call's time, the call, and the
    numbers of its pointers (parameter, result).
    """
    made = {v: (time, call) for time, call in enumerate(program.calls) for v in call.results}
    last_read = {v: time for time, call in enumerate(program.calls) for v in call.operands}
    for output, source in wanted:
        value = program.outputs[output]
        time, call = made[value]
        if (
            call.operands.count(source) == 1
            and last_read[source] == time
            and program.tensors[source] == program.tensors[value]
        ):
            result = len(call.operands) + call.results.index(value)
            yield (output, source), time, call, (call.operands.index(source), result)


def _scattered(group: Group, result: int) -> int | None:
    """The parameter that a result repeats but for some elements, if nothing else reads it."""
    number = result - len(group.parameters)
    node = group.results[number]
    if node.op != "stablehlo.scatter" or len(node.operands) != 3:
        return None
    operand = node.operands[0]
    users = sum(n.operands.count(operand) for n in group.nodes())
    if operand.op != "parameter" or users != 1 or operand in group.results:
        return None
    if group.outputs[number] != operand.tensor:
        return None
    return group.parameters.index(operand)
