"""Finds the polynomial of least weighted error: how the coefficients of the math library were made.

In: a function of mpmath numbers, an interval, a degree. Out: coefficients, lowest first, and error.
E. Remez' exchange algorithm (1934) on a grid of Chebyshev points; the weight must not vanish. The
library's fits whose weight does vanish (at r = 0) came from a linear program over the same grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp

Function = Callable[[mp.mpf], mp.mpf]


def grid(low: float, high: float, count: int) -> list[mp.mpf]:
    """Chebyshev points of the second kind, the ends included."""
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    return [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]


def value(coefficients: Sequence[mp.mpf | float], x: mp.mpf) -> mp.mpf:
    return mp.polyval([mp.mpf(c) for c in reversed(coefficients)], x)


def greatest_error(
    coefficients: Sequence[float], f: Function, points: Sequence[mp.mpf], weight: Function
) -> mp.mpf:
    return max(abs(weight(x) * (f(x) - value(coefficients, x))) for x in points)


def fit(
    f: Function, low: float, high: float, count: int, weight: Function
) -> tuple[list[mp.mpf], mp.mpf]:
    """`count` coefficients that minimise the greatest weight(x) * |f(x) - p(x)|, and that error."""
    points = grid(low, high, 300)
    wanted, weights = [f(x) for x in points], [weight(x) for x in points]
    last = len(points) - 1
    chosen = [round(last * (1 - mp.cos(mp.pi * i / count)) / 2) for i in range(count + 1)]
    while True:
        system = mp.matrix(count + 1, count + 1)
        right = mp.matrix(count + 1, 1)
        for row, i in enumerate(chosen):
            for j in range(count):
                system[row, j] = weights[i] * points[i] ** j
            system[row, count] = (-1) ** row
            right[row] = weights[i] * wanted[i]
        solution = mp.lu_solve(system, right)
        coefficients = [solution[j] for j in range(count)]
        errors = [
            w * (y - value(coefficients, x))
            for x, y, w in zip(points, wanted, weights, strict=True)
        ]
        greatest = max(map(abs, errors))
        if greatest <= 1.01 * abs(solution[count]):
            return coefficients, greatest
        chosen = _extrema(errors, count + 1)


def _extrema(errors: Sequence[mp.mpf], count: int) -> list[int]:
    """The index of the greatest error between each two changes of sign, `count` of them."""
    runs: list[list[int]] = [[0]]
    for i in range(1, len(errors)):
        if (errors[i] > 0) == (errors[i - 1] > 0):
            runs[-1].append(i)
        else:
            runs.append([i])
    peaks = [max(run, key=lambda i: abs(errors[i])) for run in runs]
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    if len(peaks) < count:
        raise ValueError("the error changes its sign too seldom: raise mpmath's precision")
    return peaks
