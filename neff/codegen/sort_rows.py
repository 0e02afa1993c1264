"""Ways to sort the positions of one row: by rank, by radix, by merging. All are stable.

In: a row's keys, or a comparison of two positions. Out: code that leaves the positions in order in
a buffer. By rank and by radix need keys (unsigned integers); merging takes any comparison, and
gives a permutation even where that is no order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.value import Val

RANK_LIMIT = 64  # up to so many elements counting is faster than 256 buckets
DIGITS = 256


@dataclass(frozen=True, slots=True)
class Items:
    """Keys and positions of a row. Keys of 32 bits share a word with their position, the key above.

    `keys`: i64 per element; `positions`: i32 per element, None where it is the low half of the
    word.
    """

    keys: Val
    positions: Val | None

    @property
    def first_bit(self) -> int:
        """The lowest bit of the key within its word."""
        return 32 if self.positions is None else 0

    def key(self, e: Emitter, i: Val) -> Val:
        return e.load(e.gep(self.keys, i, "i64"), "i64", constant=False)

    def position(self, e: Emitter, i: Val) -> Val:
        assert self.positions is not None
        return e.load(e.gep(self.positions, i, "i32"), "i32", constant=False)

    def move(self, e: Emitter, i: Val, key: Val, target: Items, to: Val) -> None:
        """Element i, whose key word is `key`, becomes element `to` of `target`."""
        e.store(key, e.gep(target.keys, to, "i64"))
        if self.positions is not None:
            assert target.positions is not None
            e.store(self.position(e, i), e.gep(target.positions, to, "i32"))


def by_rank(e: Emitter, items: Items, n: int, lanes: int, result: Val) -> None:
    """Each element's place is the number of elements that come before it.

    `items` are padded with the largest key to a multiple of `lanes`; `result`: i32 positions in
    order.
    """
    vectors = range(0, n, lanes)

    def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
        mine = items.key(e, i)
        rank = e.index(0)
        for low in vectors:
            theirs = e.load(e.gep(items.keys, low, "i64"), "i64", lanes, constant=False)
            before = e.compare("ult", theirs, mine)
            if items.positions is not None:
                earlier = e.compare("ult", e.add(e.lane_ids(lanes), e.const("i64", low, lanes)), i)
                equal = e.binary("arith.andi", e.compare("eq", theirs, mine), earlier)
                before = e.binary("arith.ori", before, equal)
            rank = e.add(rank, count_lanes(e, before))
        e.store(e.cast("arith.trunci", i, "i32"), e.gep(result, rank, "i32"))
        return []

    e.loop(e.index(0), e.index(n), 1, body)


def count_lanes(e: Emitter, mask: Val) -> Val:
    """Set lanes of a mask, as i64."""
    bits = e.pure(
        f"llvm.bitcast {mask.name} : {mask.type} to i{mask.lanes}", (mask,), f"i{mask.lanes}", 0
    )
    wide = e.pure(f"arith.extui {bits.name} : i{mask.lanes} to i64", (bits,), "i64", 0)
    return e.unary("math.ctpop", wide)


def by_radix(e: Emitter, items: Items, other: Items, counts: Val, n: Val) -> Items:
    """Byte by byte from the lowest, between two buffers; bytes that are all equal are skipped.

    `counts`: 8 x 256 i64. Answers where the elements lie in order: one of the two, known at run
    time.
    """
    passes = 8 - items.first_bit // 8
    _count_bytes(e, items, counts, n, passes)
    pointers = [p for p in (items.keys, items.positions) if p is not None]
    pointers += [p for p in (other.keys, other.positions) if p is not None]

    def step(number: Val, carried: tuple[Val, ...]) -> list[Val]:
        half = len(carried) // 2
        source, target = _items(carried[:half]), _items(carried[half:])
        table = e.gep(counts, e.mul(number, e.index(DIGITS)), "i64")
        shift = e.add(e.mul(number, e.index(8)), e.index(items.first_bit))
        first = _digit(e, source.key(e, e.index(0)), shift)
        same = e.load(e.gep(table, first, "i64"), "i64", constant=False)

        def spread() -> list[Val]:
            _spread(e, source, target, table, shift, n)
            return [*carried[half:], *carried[:half]]

        return list(e.choose(e.compare("eq", same, n), lambda: list(carried), spread))

    final = e.loop(e.index(0), e.index(passes), 1, step, pointers)
    return _items(final[: len(final) // 2])


def _items(pointers: tuple[Val, ...]) -> Items:
    return Items(pointers[0], pointers[1] if len(pointers) > 1 else None)


def _digit(e: Emitter, key: Val, shift: Val) -> Val:
    return e.binary("arith.andi", e.binary("arith.shrui", key, shift), e.index(DIGITS - 1))


def _count_bytes(e: Emitter, items: Items, counts: Val, n: Val, passes: int) -> None:
    """How often each value of each byte occurs, in one walk."""

    def clear(i: Val, _: tuple[Val, ...]) -> list[Val]:
        e.store(e.const("i64", 0, 8), e.gep(counts, i, "i64"))
        return []

    e.loop(e.index(0), e.index(passes * DIGITS), 8, clear)

    def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
        key = items.key(e, i)
        for number in range(passes):
            digit = _digit(e, key, e.index(items.first_bit + 8 * number))
            place = e.gep(e.gep(counts, digit, "i64"), number * DIGITS, "i64")
            e.store(e.add(e.load(place, "i64", constant=False), e.index(1)), place)
        return []

    e.loop(e.index(0), n, 1, body)


def _spread(e: Emitter, source: Items, target: Items, table: Val, shift: Val, n: Val) -> None:
    """Move all elements to the places of their byte; counts become running places first."""

    def running(b: Val, carried: tuple[Val, ...]) -> list[Val]:
        place = e.gep(table, b, "i64")
        own = e.load(place, "i64", constant=False)
        e.store(carried[0], place)
        return [e.add(carried[0], own)]

    e.loop(e.index(0), e.index(DIGITS), 1, running, [e.index(0)])

    def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
        key = source.key(e, i)
        place = e.gep(table, _digit(e, key, shift), "i64")
        to = e.load(place, "i64", constant=False)
        e.store(e.add(to, e.index(1)), place)
        source.move(e, i, key, target, to)
        return []

    e.loop(e.index(0), n, 1, body)


def by_merging(
    e: Emitter, first: Val, second: Val, n: int, before: Callable[[Val, Val], Val]
) -> Val:
    """Positions 0 .. n-1 in order.

    `before(a, b)`: whether position a (i64) must come before position b.

    `first`, `second`: buffers of n i32. Answers the one that holds the result, known at run time.
    """

    def fill(i: Val, _: tuple[Val, ...]) -> list[Val]:
        e.store(e.cast("arith.trunci", i, "i32"), e.gep(first, i, "i32"))
        return []

    e.loop(e.index(0), e.index(n), 1, fill)

    def double(number: Val, carried: tuple[Val, ...]) -> list[Val]:
        source, target = carried
        width = e.binary("arith.shli", e.index(1), number)
        twice = e.add(width, width)
        merges = e.binary("arith.divui", e.add(twice, e.index(n - 1)), twice)

        def merge(m: Val, _: tuple[Val, ...]) -> list[Val]:
            low = e.mul(m, twice)
            middle = e.binary("arith.minsi", e.add(low, width), e.index(n))
            high = e.binary("arith.minsi", e.add(low, twice), e.index(n))
            _merge(e, source, target, low, middle, high, n, before)
            return []

        e.loop(e.index(0), merges, 1, merge)
        return [target, source]

    return e.loop(e.index(0), e.index((n - 1).bit_length()), 1, double, [first, second])[0]


def _merge(
    e: Emitter,
    source: Val,
    target: Val,
    low: Val,
    middle: Val,
    high: Val,
    n: int,
    before: Callable[[Val, Val], Val],
) -> None:
    """Two sorted stretches into one; the left one first among equals."""

    def at(i: Val) -> Val:
        inside = e.binary("arith.minsi", i, e.index(n - 1))
        return e.load(e.gep(source, inside, "i32"), "i32", constant=False)

    def step(k: Val, carried: tuple[Val, ...]) -> list[Val]:
        left, right = carried
        a, b = at(left), at(right)
        wins = before(e.cast("arith.extui", b, "i64"), e.cast("arith.extui", a, "i64"))
        left_over = e.compare("sge", left, middle)
        right_left = e.compare("slt", right, high)
        take = e.binary("arith.andi", right_left, e.binary("arith.ori", left_over, wins))
        e.store(e.select(take, b, a), e.gep(target, k, "i32"))
        moved = e.cast("arith.extui", take, "i64")
        return [e.add(left, e.sub(e.index(1), moved)), e.add(right, moved)]

    e.loop(low, high, 1, step, [low, middle])
