"""Why an entry was not found: what differs from the most similar entry that is there.

In: a store and a key. Out: an `Explanation`; its text is for people. Invariant: reads only; works
for entries of this version and skips those that record no key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from neuron_compile.cache import graph_difference
from neuron_compile.cache.key import Key
from neuron_compile.cache.layout import Found, files
from neuron_compile.cache.store import Miss, Store
from neuron_compile.cache.upkeep import entries

Checked = TypeVar("Checked")

# Reading every entry of a large cache to explain one miss would take longer than the compile it
# explains.
_MOST_READ = 256

_MOST_SHOWN = 8

# What parts of the key are called where their own name says little.
_TITLES = {
    "aot.kind": "kind",
    "aot.output_strides": "strides of the outputs",
    "default_dtype": "default dtype",
    "sources": "neuron-compile's own code",
}
# Digests that follow from the graph and its inputs: no news if one of those differs.
_DERIVED = frozenset({"outputs", "values", "aot.output_strides"})
# Farther than any two graphs: one of them is not recorded.
_UNKNOWN_DISTANCE = 1 << 40
# A forward and a backward graph have less in common than their operators say.
_DISTANCE_OF_KINDS = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """`stored` and `wanted` are values where they are short, else digests; empty: not there."""

    name: str
    stored: str
    wanted: str

    @property
    def title(self) -> str:
        """The name for people."""
        if self.name.startswith("option."):
            return f"option {self.name.removeprefix('option.')}"
        return _TITLES.get(self.name, self.name)

    @property
    def texts(self) -> tuple[str, str] | None:
        """Both sides for people, stored first; None where only digests are known."""
        if _is_digest(self.stored) and _is_digest(self.wanted):
            return None
        return _shown(self.stored), _shown(self.wanted)

    def __str__(self) -> str:
        if self.texts is None:
            return f"{self.title} differs"
        return f"{self.title}: stored {self.texts[0]}, wanted {self.texts[1]}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """An entry as far as it can be compared. `graph` is its text, empty where none is recorded."""

    path: Path
    key: Key
    graph: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`reason` is a sentence; `differences` are those from the entry at `nearest`."""

    reason: str
    nearest: Path | None = None
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        lines = [self.reason]
        lines += [f"  {difference}" for difference in self.differences[:_MOST_SHOWN]]
        if len(self.differences) > _MOST_SHOWN:
            lines.append(f"  and {len(self.differences) - _MOST_SHOWN} more differences")
        if self.nearest is not None:
            lines.append(f"  nearest entry: {self.nearest}")
        return "\n".join(lines)


def explain(
    store: Store[Checked], key: Key, *, graph: str = "", before: float | None = None
) -> Explanation:
    """Say why `store` has no usable entry for `key`.

    `graph` is the graph's text; with it, differing operators are named. `before` (seconds since the
    epoch) leaves out younger entries: those that the same run has just stored are not what the user
    wonders about.
    """
    path = store.path(key)
    problem = _problem(store, path)
    if problem is not None:
        return problem
    wanted = Recorded(path, key, graph)
    same_graph = [f for f in files(path.parent) if f.kind == "entry" and _older(f, before)]
    near = nearest(wanted, records(store, same_graph))
    if near is not None:
        reason = f"this graph is in the cache for {len(same_graph)} other shape signature(s)"
        return Explanation(reason, near.path, differences(near, wanted))
    others = sorted(
        (f for f in entries(store.root) if _older(f, before)),
        key=lambda f: f.modified,
        reverse=True,
    )
    if not others:
        return Explanation(f"the cache at {store.root} has no entries")
    near = nearest(wanted, records(store, others))
    if near is None:
        return Explanation(f"none of the entries in {store.root} can be compared")
    return Explanation("no entry has this graph hash", near.path, differences(near, wanted))


def _problem(store: Store[Checked], path: Path) -> Explanation | None:
    """What to say when the key's path is taken: a hit, or something unusable."""
    found = store.peek(path)
    if not isinstance(found, Miss):
        return Explanation("the cache has this entry", path)
    if found.reason == "absent":
        return None
    return Explanation(f"the entry is {found.reason}: {found.detail}", path)


def _older(found: Found, before: float | None) -> bool:
    return before is None or found.modified < before


def records(store: Store[Checked], candidates: Sequence[Found]) -> list[Recorded]:
    """What the entries record, as far as they are sound; of many, only the first are read."""
    found = []
    for candidate in candidates[:_MOST_READ]:
        recorded = store.recorded(candidate.path)
        if recorded is not None:
            key, notes = recorded
            found.append(Recorded(candidate.path, key, notes.graph))
    return found


def nearest(wanted: Recorded, candidates: Sequence[Recorded]) -> Recorded | None:
    """The candidate whose graph is the most similar, and among those the one whose key is."""
    return min(
        candidates,
        key=lambda stored: (_distance(stored, wanted), len(compare(stored.key, wanted.key))),
        default=None,
    )


def differences(stored: Recorded, wanted: Recorded) -> tuple[Difference, ...]:
    """As `compare`, but with operators in the place of the graph's digest, where both graphs are
    known, and without digests that follow from what differs already.
    """
    compared = compare(stored.key, wanted.key)
    if any(d.name == "graph" or d.name.startswith("input ") for d in compared):
        compared = tuple(d for d in compared if d.name not in _DERIVED)
    found: list[Difference] = []
    for difference in compared:
        is_graph = difference.name == "graph"
        found += _of_graphs(difference, stored, wanted) if is_graph else [difference]
    return tuple(found)


def _of_graphs(digests: Difference, stored: Recorded, wanted: Recorded) -> list[Difference]:
    texts = (stored.graph, wanted.graph)
    line = graph_difference.first_line(*texts) if all(texts) else None
    if line is None:
        return [digests]
    more = graph_difference.operators(*texts)
    first = Difference(f"line {line[0]} of the graph", line[1], line[2])
    return [Difference("operators", *more), first] if any(more) else [first]


def _distance(stored: Recorded, wanted: Recorded) -> int:
    if _part(stored, "graph") == _part(wanted, "graph"):
        return 0
    if not (stored.graph and wanted.graph):
        return _UNKNOWN_DISTANCE
    same_kind = _part(stored, "aot.kind") == _part(wanted, "aot.kind")
    # Graphs of the same operators with other arguments are not the same graph.
    least = 1 if same_kind else 1 + _DISTANCE_OF_KINDS
    return least + graph_difference.distance(stored.graph, wanted.graph)


def _part(recorded: Recorded, name: str) -> str | None:
    return dict(recorded.key.parts).get(name)


def compare(stored: Key, wanted: Key) -> tuple[Difference, ...]:
    """The parts and then the lines of the shape signature in which two keys differ."""
    return (
        *_compare(dict(stored.parts), dict(wanted.parts)),
        *_compare(_lines(stored.signature), _lines(wanted.signature)),
    )


def _compare(stored: dict[str, str], wanted: dict[str, str]) -> list[Difference]:
    names = [*stored, *(name for name in wanted if name not in stored)]
    return [
        Difference(name, stored.get(name, ""), wanted.get(name, ""))
        for name in names
        if stored.get(name) != wanted.get(name)
    ]


def _lines(signature: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in signature.splitlines())
    return {name: value for name, _, value in pairs}


def _shown(value: str) -> str:
    if _is_digest(value):
        return f"({value.removeprefix('=')[:12]})"
    return value.removeprefix("=") or "nothing"


def _is_digest(value: str) -> bool:
    """Also where the part itself is a digest, as that of the sources."""
    return re.fullmatch(r"=?[0-9a-f]{64}", value) is not None
