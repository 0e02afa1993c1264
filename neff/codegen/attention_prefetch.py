"""Brings the next batch entry's rows to the second-level cache while this one's are computed.

In: operands whose rows lie in memory as they are. Out: prefetches, a few rows at a time. Rows of
one head lie far apart, each in a page of its own: the processor sees no stream in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import in_memory
from neuron_compile.neff.codegen.emitter import LINE_BYTES
from neuron_compile.neff.codegen.evaluate import Evaluator
from neuron_compile.neff.codegen.index import ZERO, Index, of
from neuron_compile.neff.codegen.value import Val, bytes_of
from neuron_compile.neff.codegen.views import Indices, Source

Reader = Callable[[Indices, Index, Index], Source]


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `length` neighbouring elements of a tensor; `read(batch, row, column)`."""

    read: Reader
    count: int
    length: int


def rows_in_memory(
    v: Evaluator, batch: tuple[int, ...], read: Reader, count: int, length: int
) -> Rows | None:
    """The rows, if they are one tensor's seen through views, contiguous along the columns."""
    column = domain.variable(length)
    at = tuple(of(domain.variable(n)) for n in batch)
    found = in_memory(read(at, of(domain.variable(count)), of(column)), v.bases.__contains__)
    if found is None or found[1].coefficient(column) != 1:
        return None
    return Rows(read, count, length)


def prefetch(v: Evaluator, rows: Rows, batch: Indices, part: Index, parts: int) -> None:
    """One of `parts` equal parts of the rows of a batch entry."""
    e, each = v.e, -(-rows.count // parts)

    def one(i: Val, _: tuple[Val, ...]) -> list[Val]:
        inner = domain.variable(max(each, 2))
        v.values[inner] = i
        row = (part * each + of(inner)).bounded(0, rows.count - 1)
        found = in_memory(rows.read(batch, row, ZERO), v.bases.__contains__)
        assert found is not None
        node, offset = found
        step = LINE_BYTES // bytes_of(node.tensor.stored)
        for column in range(0, rows.length, step):
            address = e.gep(v.bases[node], v.scalar(offset), node.tensor.stored)
            e.prefetch(e.gep(address, column, node.tensor.stored))
        return []

    e.loop(e.index(0), e.index(each), 1, one)
