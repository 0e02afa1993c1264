"""Why an entry was not found: what differs from the most similar entry that is there.

In: a store and a key. Out: an `Explanation`; its text is for people. Invariant: reads only; works
for entries of this version and skips those that record no key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from neuron_compile.cache.key import Key
from neuron_compile.cache.layout import Found, files
from neuron_compile.cache.store import Miss, Store
from neuron_compile.cache.upkeep import entries

Checked = TypeVar("Checked")

# Reading every entry of a large cache to explain one miss would take longer than the compile it
# explains.
_MOST_READ = 256

_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """`stored` and `wanted` are values where they are short, else digests; empty: not there."""

    name: str
    stored: str
    wanted: str

    def __str__(self) -> str:
        if _is_digest(self.stored) and _is_digest(self.wanted):
            return f"{self.name} differs"
        return f"{self.name}: stored {_shown(self.stored)}, wanted {_shown(self.wanted)}"


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


def explain(store: Store[Checked], key: Key, *, before: float | None = None) -> Explanation:
    """Say why `store` has no usable entry for `key`.

    `before` (seconds since the epoch) leaves out younger entries: those that the same run has just
    stored are not what the user wonders about.
    """
    path = store.path(key)
    problem = _problem(store, path)
    if problem is not None:
        return problem
    same_graph = [f for f in files(path.parent) if f.kind == "entry" and _older(f, before)]
    nearest = _nearest(store, key, same_graph)
    if nearest is not None:
        reason = f"this graph is in the cache for {len(same_graph)} other shape signature(s)"
        return Explanation(reason, nearest[0], nearest[1])
    others = sorted(
        (f for f in entries(store.root) if _older(f, before)),
        key=lambda f: f.modified,
        reverse=True,
    )
    if not others:
        return Explanation(f"the cache at {store.root} has no entries")
    nearest = _nearest(store, key, others)
    if nearest is None:
        return Explanation(f"none of the entries in {store.root} can be compared")
    return Explanation("no entry has this graph hash", nearest[0], nearest[1])


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


def _nearest(
    store: Store[Checked], key: Key, candidates: list[Found]
) -> tuple[Path, tuple[Difference, ...]] | None:
    best = None
    for found in candidates[:_MOST_READ]:
        recorded = store.recorded(found.path)
        if recorded is None:
            continue
        differences = compare(recorded, key)
        if best is None or len(differences) < len(best[1]):
            best = (found.path, differences)
    return best


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
        return f"({value[:12]})"
    return value.removeprefix("=") or "nothing"


def _is_digest(value: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{64}", value) is not None
