"""The first elements of a long row without sorting it all: count by leading bits, keep the front.

In: vectors of key words (as in `sort_rows.Items`). Out: code that counts them in buckets by their
leading bits, finds how many buckets hold the wanted number, and collects what lies in those.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.sort_rows import Items, count_lanes
from neuron_compile.neff.codegen.value import Val

BUCKET_BITS = 12  # of a float: the sign, the exponent, three bits of the fraction
BUCKETS = 1 << BUCKET_BITS


def buckets_of(e: Emitter, words: Val) -> Val:
    """Bucket numbers (i32) of key words."""
    leading = e.binary("arith.shrui", words, e.const("i64", 64 - BUCKET_BITS, words.lanes))
    return e.cast("arith.trunci", leading, "i32")


def clear_buckets(e: Emitter, counts: Val) -> None:
    """`counts`: BUCKETS x i32."""

    def clear(i: Val, _: tuple[Val, ...]) -> list[Val]:
        e.store(e.const("i32", 0, 16), e.gep(counts, i, "i32"))
        return []

    e.loop(e.index(0), e.index(BUCKETS), 16, clear)


def count_buckets(e: Emitter, counts: Val, numbers: Val, lanes: int) -> None:
    """Count the first `lanes` bucket numbers that lie at `numbers`."""
    for i in range(lanes):
        number = e.load(e.gep(numbers, i, "i32"), "i32", constant=False)
        place = e.gep(counts, e.cast("arith.extui", number, "i64"), "i32")
        e.store(e.add(e.load(place, "i32", constant=False), e.const("i32", 1)), place)


def bucket_limit(e: Emitter, counts: Val, wanted: int) -> Val:
    """The smallest bucket number (i32) before which at least `wanted` elements lie."""

    def too_few(state: tuple[Val, ...]) -> Val:
        return e.compare("slt", state[1], e.const("i32", wanted))

    def further(state: tuple[Val, ...]) -> list[Val]:
        number, total = state
        more = e.load(e.gep(counts, number, "i32"), "i32", constant=False)
        return [e.add(number, e.index(1)), e.add(total, more)]

    number, _ = e.while_loop([e.index(0), e.const("i32", 0)], too_few, further)
    return e.cast("arith.trunci", number, "i32")


def append(e: Emitter, items: Items, count: Val, words: Val, ids: Val, chosen: Val) -> None:
    """Add the chosen lanes behind the `count` (address of an i64) items that are there."""
    filled = e.load(count, "i64", constant=False)
    _compress(e, words, e.gep(items.keys, filled, "i64"), chosen)
    if items.positions is not None:
        short = e.cast("arith.trunci", ids, "i32")
        _compress(e, short, e.gep(items.positions, filled, "i32"), chosen)
    e.store(e.add(filled, count_lanes(e, chosen)), count)


def _compress(e: Emitter, value: Val, address: Val, chosen: Val) -> None:
    """Store the chosen lanes side by side."""
    e.statement(
        f'"llvm.intr.masked.compressstore"({value.name}, {address.name}, {chosen.name})'
        f" : ({value.type}, !llvm.ptr, {chosen.type}) -> ()"
    )
