"""Integer index expressions over loop variables with known ranges.

An `Index` is affine: a constant plus integer multiples of atoms. Atoms are loop variables, floor
divisions and remainders of an `Index` by a positive constant, and run-time values (a gather's
index). Building an expression simplifies it by ranges, so reshapes whose factors match the loops
leave no division behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable with values in [0, extent), multiples of `step`.

    `is_lane` marks the lane of a vector.
    """

    name: str
    extent: int
    is_lane: bool = False
    step: int = 1

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.extent - 1


@dataclass(frozen=True, slots=True)
class Quotient:
    """`index // divisor`, rounded towards minus infinity."""

    index: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.index.bounds
        return low // self.divisor, high // self.divisor


@dataclass(frozen=True, slots=True)
class Remainder:
    """`index % divisor`, in [0, divisor)."""

    index: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.divisor - 1


@dataclass(frozen=True, slots=True)
class Runtime:
    """An i64 known only when the kernel runs: the SSA `name`; `lanes` 0 for a scalar."""

    name: str
    lanes: int
    depth: int
    low: int
    high: int

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Bounded:
    """`min(max(index, low), high)`."""

    index: Index
    low: int
    high: int

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.index.bounds
        return min(max(low, self.low), self.high), min(max(high, self.low), self.high)


Atom = Var | Quotient | Remainder | Runtime | Bounded


@dataclass(frozen=True, slots=True)
class Index:
    """constant + sum(coefficient * atom)."""

    constant: int
    terms: tuple[tuple[Atom, int], ...] = ()

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest possible value."""
        low = high = self.constant
        for atom, factor in self.terms:
            a, b = atom.bounds
            low += factor * (a if factor > 0 else b)
            high += factor * (b if factor > 0 else a)
        return low, high

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms)
        if not other.terms:
            return Index(self.constant + other.constant, self.terms)
        if not self.terms:
            return Index(self.constant + other.constant, other.terms)
        return combine(self.constant + other.constant, (*self.terms, *other.terms))

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return ZERO
        return Index(self.constant * factor, tuple((a, c * factor) for a, c in self.terms))

    def __sub__(self, other: Index) -> Index:
        return self + other * -1

    def __floordiv__(self, divisor: int) -> Index:
        return _divide(self, divisor)[0]

    def __mod__(self, divisor: int) -> Index:
        return _divide(self, divisor)[1]

    def bounded(self, low: int, high: int) -> Index:
        """Clamp to [low, high]; nothing where the range already lies inside."""
        if low == high:
            return Index(low)
        a, b = self.bounds
        if low <= a and b <= high:
            return self
        return Index(0, ((Bounded(self, low, high), 1),))

    def is_multiple(self, divisor: int) -> bool:
        """Whether all values are known to be multiples of `divisor`."""
        steps = (c * (a.step if isinstance(a, Var) else 1) for a, c in self.terms)
        return self.constant % divisor == 0 and all(s % divisor == 0 for s in steps)

    def coefficient(self, atom: Atom) -> int:
        for a, c in self.terms:
            if a == atom:
                return c
        return 0

    def substitute(self, values: Mapping[Var, Index]) -> Index:
        """Replace loop variables and simplify anew."""
        result = Index(self.constant)
        for atom, factor in self.terms:
            result = result + _substitute_atom(atom, values) * factor
        return result

    def variables(self) -> Iterator[Var]:
        """All loop variables, also those inside divisions."""
        for atom, _ in self.terms:
            if isinstance(atom, Var):
                yield atom
            elif not isinstance(atom, Runtime):
                yield from atom.index.variables()

    def runtimes(self) -> Iterator[Runtime]:
        for atom, _ in self.terms:
            if isinstance(atom, Runtime):
                yield atom
            elif not isinstance(atom, Var):
                yield from atom.index.runtimes()

    def divisions(self) -> Iterator[Quotient | Remainder]:
        for atom, _ in self.terms:
            if isinstance(atom, (Quotient, Remainder)):
                yield atom
                yield from atom.index.divisions()
            elif isinstance(atom, Bounded):
                yield from atom.index.divisions()


ZERO = Index(0)


def constant(value: int) -> Index:
    return Index(value)


def of(atom: Atom) -> Index:
    """The expression that is just `atom`; a variable of extent 1 is 0."""
    low, high = atom.bounds
    if low == high:
        return Index(low)
    return Index(0, ((atom, 1),))


def combine(base: int, terms: Iterable[tuple[Atom, int]]) -> Index:
    """Sum with equal atoms merged and zero terms dropped; order of first appearance."""
    merged: dict[Atom, int] = {}
    for atom, factor in terms:
        merged[atom] = merged.get(atom, 0) + factor
    for atom, factor in merged.items():
        if (
            isinstance(atom, Remainder)
            and factor
            and merged.get(Quotient(atom.index, atom.divisor)) == factor * atom.divisor
        ):
            return _recombine(base, merged, atom, factor)
    return Index(base, tuple((a, c) for a, c in merged.items() if c))


def _recombine(base: int, merged: dict[Atom, int], atom: Remainder, factor: int) -> Index:
    """d * (i // d) + i % d = i."""
    del merged[atom], merged[Quotient(atom.index, atom.divisor)]
    whole = atom.index * factor
    return combine(base + whole.constant, (*merged.items(), *whole.terms))


@lru_cache(maxsize=1 << 16)
def _divide(index: Index, divisor: int) -> tuple[Index, Index]:
    """Quotient and remainder of floor division by a positive constant.

    Rests on: (d*q + r) // d = q + r // d for every integer q;
    r // d = 0 and r % d = r if 0 <= r < d; and for a common factor g of all terms of r and of d,
    with constant part c = g*k + s, 0 <= s < g:
    r // d = (r // g) // (d // g), r % d = g * ((r // g) % (d // g)) + s.
    The same holds where r = g*a + s with an s that varies, but only within [0, g).
    """
    if divisor == 1:
        return index, ZERO
    whole = combine(
        index.constant // divisor, ((a, c // divisor) for a, c in index.terms if c % divisor == 0)
    )
    rest = combine(index.constant % divisor, ((a, c) for a, c in index.terms if c % divisor))
    low, high = rest.bounds
    if low // divisor == high // divisor:
        shift = low // divisor
        return whole + shift, rest + -shift * divisor
    common = divisor
    for _, c in rest.terms:
        common = gcd(common, c)
    if common > 1:
        inner = Index(rest.constant // common, tuple((a, c // common) for a, c in rest.terms))
        quotient, remainder = _divide(inner, divisor // common)
        return whole + quotient, remainder * common + rest.constant % common
    for _, c in rest.terms:
        step = gcd(divisor, c)
        coarse, fine = _split(rest, step)
        if fine.terms and fine.bounds[0] >= 0 and fine.bounds[1] < step:
            quotient, remainder = _divide(coarse, divisor // step)
            return whole + quotient, remainder * step + fine
    return whole + of(Quotient(rest, divisor)), of(Remainder(rest, divisor))


def _split(index: Index, step: int) -> tuple[Index, Index]:
    """(a, s) with index = step * a + s, all multiples of `step` in a."""
    coarse = tuple((a, c // step) for a, c in index.terms if c % step == 0)
    fine = tuple((a, c) for a, c in index.terms if c % step)
    return Index(index.constant // step, coarse), Index(index.constant % step, fine)


def _substitute_atom(atom: Atom, values: Mapping[Var, Index]) -> Index:
    if isinstance(atom, Var):
        return values.get(atom, of(atom))
    if isinstance(atom, Runtime):
        return of(atom)
    inner = atom.index.substitute(values)
    if isinstance(atom, Quotient):
        return inner // atom.divisor
    if isinstance(atom, Remainder):
        return inner % atom.divisor
    return inner.bounded(atom.low, atom.high)


def linear(indices: Iterable[Index], strides: Iterable[int]) -> Index:
    """Offset in elements of a position in a strided tensor."""
    base = 0
    terms: list[tuple[Atom, int]] = []
    for index, stride in zip(indices, strides, strict=True):
        base += index.constant * stride
        terms.extend((a, c * stride) for a, c in index.terms)
    return combine(base, terms)


def unravel(offset: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """Row-major position of a linear offset; the inverse of `linear` with contiguous strides."""
    result: list[Index] = []
    for extent in reversed(shape[1:]):
        offset, position = _divide(offset, extent) if extent > 1 else (offset, ZERO)
        result.append(position)
    if shape:
        result.append(offset if shape[0] > 1 else ZERO)
    return tuple(reversed(result))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
