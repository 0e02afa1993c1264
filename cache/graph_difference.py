"""What differs between the texts of two graphs, in few words.

In: two canonical texts, `%<number> = <what>(<arguments>)` a line. Out: operators that one has more
of, the first line that differs, and how far apart the two are. Invariant: reads text only; any text
will do.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import zip_longest

_LINE = re.compile(r"%\d+ = ([^(]*)")
_MOST_OPERATORS = 6


def distance(first: str, second: str) -> int:
    """How many operators one graph has that the other has not, counting both ways."""
    ours, theirs = _operators(first), _operators(second)
    return (ours - theirs).total() + (theirs - ours).total()


def operators(first: str, second: str) -> tuple[str, str]:
    """What each has more of than the other: `aten::mul.Tensor x2, input`; empty for nothing."""
    ours, theirs = _operators(first), _operators(second)
    return _listed(ours - theirs), _listed(theirs - ours)


def first_line(first: str, second: str) -> tuple[int, str, str] | None:
    """The number of the first line that differs, from 1 on, and both lines; None: no line does.

    A graph that has ended has an empty line there.
    """
    pairs = zip_longest(first.splitlines(), second.splitlines(), fillvalue="")
    return next(((i, a, b) for i, (a, b) in enumerate(pairs, 1) if a != b), None)


def _operators(text: str) -> Counter[str]:
    found = (_LINE.match(line) for line in text.splitlines())
    names = Counter(line[1].strip() for line in found if line)
    del names["output"]  # each graph has one
    return names


def _listed(more: Counter[str]) -> str:
    names = {"placeholder": "input"}
    texts = [
        names.get(name, name) + (f" x{count}" if count > 1 else "")
        for name, count in sorted(more.items())
    ]
    cut = [f"and {len(texts) - _MOST_OPERATORS} more"] if len(texts) > _MOST_OPERATORS else []
    return ", ".join([*texts[:_MOST_OPERATORS], *cut])
