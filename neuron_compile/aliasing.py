"""Arguments that share memory in one call and not in another (T005), or begin elsewhere in it.

In: a compiled callable that changes some of its arguments or holds their offsets, and a way to
compile it anew. Out: a callable that notices when a changed argument overlaps another one as it did
not before, or an argument begins elsewhere. Invariant: code traced for separate arguments never
runs on overlapping ones.

Why: AOTAutograd traces arguments that overlap through one common base, but Dynamo's guards do not
see that arguments, separate when the graph was captured, overlap later. Nor do they see offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neuron_compile.absolute import storage_length

# Per argument that matters: position, offset in its storage, size, strides (in elements).
Pattern = tuple[tuple[int, int, tuple[int, ...], tuple[int, ...]], ...]

# Variants kept; an argument that moves through a long storage would make one for every place.
_KEPT = 256


class AliasGuard:
    """Calls `compiled`, or a variant made by `recompile(args)` when the arguments overlap
    otherwise.

    `changed` are the positions of the arguments that are written to; `offsets` says whether the
    places of all arguments matter. The pattern of the first call, which follows the capture, is the
    one `compiled` was made for.
    """

    def __init__(
        self,
        compiled: Callable[..., Any],
        changed: Sequence[int],
        recompile: Callable[[Sequence[Any]], Callable[..., Any]],
        *,
        offsets: bool = False,
    ) -> None:
        self._compiled = compiled
        self._changed = frozenset(changed)
        self._recompile = recompile
        self._offsets = offsets
        self._expected: Pattern | None = None
        self._variants: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def call(self, *args: Any) -> Any:
        """Run the code for these arguments."""
        pattern = overlaps(args, self._changed)
        if self._offsets:
            pattern += places(args)
        if self._expected is None:
            self._expected = pattern
        if pattern == self._expected:
            return self._compiled(*args)
        return self._variant(pattern, args)(*args)

    def _variant(self, pattern: Pattern, args: Sequence[Any]) -> Callable[..., Any]:
        layouts = [(a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args]
        key = (pattern, *layouts)
        with self._lock:
            variant = self._variants.get(key)
            if variant is None:
                variant = self._variants[key] = self._recompile(args)
                if len(self._variants) > _KEPT:
                    self._variants.pop(next(iter(self._variants)))
        return variant


def overlaps(args: Sequence[Any], changed: frozenset[int]) -> Pattern:
    """Which arguments share memory with one that is changed, and where they lie; usually none."""
    tensors = [(i, a) for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    storages = [a.untyped_storage()._cdata for _, a in tensors]
    if len(set(storages)) == len(storages):
        return ()
    involved: set[int] = set()
    for (i, a), storage in zip(tensors, storages, strict=True):
        if i not in changed:
            continue
        for (j, b), other in zip(tensors, storages, strict=True):
            if j != i and other == storage and _extents_meet(a, b):
                involved |= {i, j}
    return tuple(
        (i, args[i].storage_offset(), tuple(args[i].shape), args[i].stride())
        for i in sorted(involved)
    )


def places(args: Sequence[Any]) -> Pattern:
    """Where every tensor begins, and how long its storage is."""
    return tuple(
        (i, a.storage_offset(), (storage_length(a),), ())
        for i, a in enumerate(args)
        if isinstance(a, torch.Tensor)
    )


def _extents_meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.numel() or not b.numel():
        return False
    (a_start, a_end), (b_start, b_end) = _extent(a), _extent(b)
    return a_start < b_end and b_start < a_end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and the byte after the last one, counted from the start of the storage."""
    start = tensor.storage_offset()
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    size = tensor.element_size()
    return start * size, (start + last + 1) * size
