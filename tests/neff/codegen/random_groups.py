"""Hypothesis strategy for group functions: random DAGs of everything the code generator knows.

In: draws, or a seed. Out: a `RandomGroup`: text as `native.outlined` takes it, and memory for its
arguments. Invariant: a value marked exact holds integers small enough that every order of rounding
gives the same bits, so that it may be compared, sorted and converted; other values meet no
operation that jumps.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.neff.codegen import random_folds as folds
from tests.neff.codegen import random_steps as steps
from tests.neff.codegen.random_values import (
    PALETTES,
    Choose,
    Drawn,
    RandomGroup,
    argument,
    layout_text,
)

STEPS = (
    *(steps.unary, steps.unary, steps.smooth, steps.binary, steps.binary, steps.binary),
    *(steps.compare_and_select, steps.convert, steps.transpose, steps.transpose, steps.reshape),
    *(steps.reshape, steps.broadcast, steps.slice_, steps.reverse, steps.pad, steps.concatenate),
    *(steps.iota, steps.gather_rows, steps.dynamic_slice),
    *(folds.reduce, folds.reduce, folds.arg_reduce, folds.softmax_like, folds.normalised),
    *(folds.window, folds.dot, folds.dot, folds.convolution, folds.scatter_rows, folds.sort),
)


@st.composite
def groups(draw: st.DrawFn, max_operations: int = 10) -> RandomGroup:
    """Groups as Hypothesis likes them."""
    return random_group(Drawn(draw), max_operations)


def random_group(choose: Choose, max_operations: int = 10) -> RandomGroup:
    """One to three arguments, up to `max_operations` steps, one to three results."""
    group = RandomGroup()
    elems = choose.one_of(PALETTES)
    for number in range(choose.integer(1, 3)):
        argument(choose, group, number, choose.one_of(elems))
    for _ in range(choose.integer(2, max_operations)):
        choose.one_of(STEPS)(choose, group)
    made = [v for v in group.values if not v.name.startswith("%a")] or group.values
    last = [v for v in group.unused() if v in made][-2:]
    more = [choose.one_of(made)] if choose.flag() else []
    group.outputs = list(dict.fromkeys([*(last or made[-1:]), *more]))
    group.result_layouts = [layout_text(choose, o.shape) for o in group.outputs]
    return group
