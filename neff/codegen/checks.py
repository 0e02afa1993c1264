"""Booleans that end the run where they are false, computed before anything else.

In: a program whose last results they are. Out: the program without these results, in another order.
So a run that ends early has done little, and above all has written no input in place.
"""

from __future__ import annotations

from dataclasses import replace

from neuron_compile.neff.codegen.module import Program


def checks_first(program: Program, count: int) -> Program:
    """With the last `count` outputs as checks: first the calls they need, then all others, both in
    their order.
    """
    kept = len(program.outputs) - count
    outputs, checks = program.outputs[:kept], program.outputs[kept:]
    wanted = set(checks)
    early = [False] * len(program.calls)
    for time, call in reversed(list(enumerate(program.calls))):
        if not wanted.isdisjoint(call.results):
            early[time] = True
            wanted.update(call.operands)
    calls = list(zip(early, program.calls, strict=True))
    first, rest = ([c for is_early, c in calls if is_early is side] for side in (True, False))
    return replace(program, outputs=outputs, checks=checks, calls=(*first, *rest))
