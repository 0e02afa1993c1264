"""Which inputs, with which weights, make each output of a resampling along one dimension.

In: sizes and eager's parameters (align_corners, scale). Out: `Taps`. Invariant: source positions
are computed in the precision eager uses, so that nearest neighbours and weights agree with it.
Formulas: half-pixel or corner-aligned source positions, and the cubic kernel of Keys (1981) with
a = -0.75, or -0.5 when antialiased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_CUBIC = -0.75
_CUBIC_ANTIALIASED = -0.5


@dataclass(frozen=True, slots=True)
class Taps:
    """Output i is the sum over t of weight[i, t] * input[index[i, t]], where valid[i, t].

    Arrays of shape [outputs, taps]; an index that is not valid is in range all the same.
    """

    index: np.ndarray
    weight: np.ndarray
    valid: np.ndarray


def from_lists(lists: Sequence[Sequence[tuple[int, float]]]) -> Taps:
    """From one list of (input, weight) for each output; short lists repeat their last entry."""
    longest = max((len(entries) for entries in lists), default=0)
    shape = (len(lists), longest)
    index, weight = np.zeros(shape, np.int64), np.zeros(shape, np.float64)
    valid = np.zeros(shape, bool)
    for i, entries in enumerate(lists):
        for t in range(longest):
            if t < len(entries):
                index[i, t], weight[i, t] = entries[t]
                valid[i, t] = True
            elif entries:
                index[i, t] = entries[-1][0]
    return Taps(index, weight, valid)


def transpose(taps: Taps, inputs: int) -> Taps:
    """The taps of the gradient: outputs and inputs change places; weights of 0 are dropped."""
    lists: list[list[tuple[int, float]]] = [[] for _ in range(inputs)]
    for i in range(taps.index.shape[0]):
        # Two taps of one output may hit the same input (at a border).
        merged: dict[int, float] = {}
        for t in np.flatnonzero(taps.valid[i]):
            source = int(taps.index[i, t])
            merged[source] = merged.get(source, 0.0) + float(taps.weight[i, t])
        for source, weight in merged.items():
            if weight:
                lists[source].append((i, weight))
    return from_lists(lists)


# ---- source positions ------------------------------------------------------------------------


def _scale(
    inputs: int, outputs: int, align_corners: bool, scale: float | None, real: type[np.floating]
) -> np.floating:
    if align_corners:
        return real(inputs - 1) / real(outputs - 1) if outputs > 1 else real(0)
    if scale is not None and scale > 0:
        return real(1.0 / scale)
    return real(inputs) / real(outputs)


def _positions(
    inputs: int, outputs: int, align_corners: bool, scale: float | None, real: type[np.floating]
) -> np.ndarray:
    step = _scale(inputs, outputs, align_corners, scale, real)
    at = np.arange(outputs, dtype=real)
    if align_corners:
        return at * step
    half = real(0.5)
    return step * (at + half) - half


def nearest(
    inputs: int, outputs: int, scale: float | None, *, exact: bool, real: type[np.floating]
) -> Taps:
    """The one nearest input; `exact` measures from pixel centres."""
    step = _scale(inputs, outputs, False, scale, real)
    at = np.arange(outputs, dtype=real)
    if exact:
        at = at + real(0.5)
    source = np.minimum(np.floor(at * step).astype(np.int64), inputs - 1)
    return from_lists([[(int(i), 1.0)] for i in source])


def linear(
    inputs: int, outputs: int, align_corners: bool, scale: float | None, real: type[np.floating]
) -> Taps:
    """The two neighbours, weighted by distance; beyond the border the border."""
    if inputs == outputs:
        return from_lists([[(i, 1.0)] for i in range(outputs)])
    lists = []
    for position in np.maximum(_positions(inputs, outputs, align_corners, scale, real), 0):
        low = min(int(position), inputs - 1)
        share = min(max(position - real(low), real(0)), real(1))
        entries = [(low, float(real(1) - share)), (min(low + 1, inputs - 1), float(share))]
        lists.append(entries)
    return from_lists(lists)


def cubic(
    inputs: int, outputs: int, align_corners: bool, scale: float | None, real: type[np.floating]
) -> Taps:
    """The four neighbours; beyond the border the border."""
    if inputs == outputs:
        return from_lists([[(i, 1.0)] for i in range(outputs)])
    lists = []
    for position in _positions(inputs, outputs, align_corners, scale, real):
        low = int(np.floor(position))
        share = float(position - real(low))
        distances = (1 + share, share, 1 - share, 2 - share)
        lists.append(
            [
                (min(max(low - 1 + t, 0), inputs - 1), _keys(d, _CUBIC))
                for t, d in enumerate(distances)
            ]
        )
    return from_lists(lists)


def _keys(distance: float, a: float) -> float:
    x = abs(distance)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0


def antialiased(
    inputs: int,
    outputs: int,
    align_corners: bool,
    scale: float | None,
    real: type[np.floating],
    *,
    is_cubic: bool,
) -> Taps:
    """A kernel that widens when the result is smaller, its weights normalised to sum 1."""
    step = float(_scale(inputs, outputs, align_corners, scale, real))
    reach = 2.0 if is_cubic else 1.0
    stretch = max(step, 1.0)
    support = reach * stretch
    kernel: Callable[[float], float] = (
        (lambda x: _keys(x, _CUBIC_ANTIALIASED)) if is_cubic else (lambda x: max(0.0, 1 - abs(x)))
    )
    lists = []
    for i in range(outputs):
        centre = step * (i + 0.5)
        first = max(int(centre - support + 0.5), 0)
        count = min(int(centre + support + 0.5), inputs) - first
        weights = [kernel((j + first - centre + 0.5) / stretch) for j in range(count)]
        total = sum(weights)
        lists.append([(first + j, w / total if total else 0.0) for j, w in enumerate(weights)])
    return from_lists(lists)


def windows(inputs: int, outputs: int) -> Taps:
    """Adaptive pooling: output i covers inputs floor(i n / m) to ceil((i + 1) n / m), weight 1."""
    return from_lists(
        [
            [(j, 1.0) for j in range(i * inputs // outputs, -(-(i + 1) * inputs // outputs))]
            for i in range(outputs)
        ]
    )
