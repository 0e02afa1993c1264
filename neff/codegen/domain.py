"""Loops for an iteration space: as few and as long as the memory accesses allow.

In: a shape and a probe that tells the element offsets accessed at given indices. Out: loop
variables and the indices in terms of them. A dimension is split where a reshape cuts it;
neighbours that all accesses walk through as one are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from neuron_compile.neff.codegen.index import ZERO, Index, Var, of
from neuron_compile.neff.codegen.views import Indices

Probe = Callable[[Indices], list[Index]]


@dataclass(frozen=True, slots=True)
class Domain:
    """`variables` from the outermost to the innermost; `indices`, one per dimension."""

    variables: tuple[Var, ...]
    indices: Indices


_numbers = count()


def variable(extent: int) -> Var:
    return Var(f"d{next(_numbers)}", extent)


def stepping(limit: int, step: int) -> Var:
    """A variable with the values 0, step, 2 * step, ... below `limit`.

    Its range leaves room for `step` lanes: a sum with a lane number is known to stay below `limit`.
    """
    return Var(f"d{next(_numbers)}", (max(limit, 1) - 1) // step * step + 1, step=step)


def fit(shape: tuple[int, ...], probe: Probe, *, merge: bool = True) -> Domain:
    """Split and merge the dimensions of `shape` to suit the accesses."""
    variables = [variable(n) for n in shape]
    domain = Domain(
        tuple(v for v in variables if v.extent > 1),
        tuple(of(v) if v.extent > 1 else ZERO for v in variables),
    )
    for _ in range(8):
        cut = _find_cut(probe(domain.indices), domain.variables)
        if cut is None:
            break
        domain = _split(domain, *cut)
    return _merge_all(domain, probe) if merge else domain


def _find_cut(offsets: Iterable[Index], variables: tuple[Var, ...]) -> tuple[Var, int] | None:
    """A variable inside a division, and the extent of its inner part that would remove the
    division.
    """
    for offset in offsets:
        for division in offset.divisions():
            for atom, factor in division.index.terms:
                if not isinstance(atom, Var) or atom not in variables or factor <= 0:
                    continue
                inner = division.divisor // factor if division.divisor % factor == 0 else 0
                if 1 < inner < atom.extent and atom.extent % inner == 0:
                    return atom, inner
    return None


def _split(domain: Domain, old: Var, inner: int) -> Domain:
    high, low = variable(old.extent // inner), variable(inner)
    replacement = {old: of(high) * inner + of(low)}
    position = domain.variables.index(old)
    variables = (*domain.variables[:position], high, low, *domain.variables[position + 1 :])
    return Domain(variables, tuple(i.substitute(replacement) for i in domain.indices))


def _merge_all(domain: Domain, probe: Probe) -> Domain:
    position = len(domain.variables) - 2
    while position >= 0:
        outer, inner = domain.variables[position : position + 2]
        if all(_walks_as_one(o, outer, inner) for o in probe(domain.indices)):
            domain = _merge(domain, position)
        position -= 1
    return domain


def _walks_as_one(offset: Index, outer: Var, inner: Var) -> bool:
    if offset.coefficient(outer) != offset.coefficient(inner) * inner.extent:
        return False
    nested = (a for a, _ in offset.terms if not isinstance(a, Var))
    return not any(v in (outer, inner) for a in nested for v in of(a).variables())


def _merge(domain: Domain, position: int) -> Domain:
    outer, inner = domain.variables[position : position + 2]
    whole = variable(outer.extent * inner.extent)
    replacement = {outer: of(whole) // inner.extent, inner: of(whole) % inner.extent}
    variables = (*domain.variables[:position], whole, *domain.variables[position + 2 :])
    return Domain(variables, tuple(i.substitute(replacement) for i in domain.indices))
