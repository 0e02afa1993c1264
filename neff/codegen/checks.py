"""Outputs that end the run where they are false, computed before anything else.

In: a program and the numbers of these outputs. Out: the program in another order. So a run that
ends early has done little, and above all has written no input in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neuron_compile.neff.codegen.module import Program


def checks_first(program: Program, checks: Sequence[int]) -> Program:
    """The calls that the outputs `checks` need, then all others; both in their order."""
    wanted = {program.outputs[i] for i in checks}
    early = [False] * len(program.calls)
    for time, call in reversed(list(enumerate(program.calls))):
        if not wanted.isdisjoint(call.results):
            early[time] = True
            wanted.update(call.operands)
    calls = list(zip(early, program.calls, strict=True))
    first, rest = ([c for is_early, c in calls if is_early is side] for side in (True, False))
    return replace(program, calls=(*first, *rest))
