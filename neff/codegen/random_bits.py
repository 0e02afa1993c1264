"""`rng_bit_generator` as a pull rule: element i is a function of (state, i) alone.

In: a node, an index. Out: random bits there, the same on every target and however vectorised.

PHILOX (and DEFAULT) is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011). State: ui64 key, ui64 counter, optionally the counter's upper 64 bits. Block b is the
cipher of counter + b. THREE_FRY is Threefry2x32-20 of the same paper; state: ui64 key and counter.
Words go from the low half up. Elements of up to 32 bits take one word of the stream each (its low
bits), 64-bit elements two, low word first. The new state has the counter past all used blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.index import Index, constant, contiguous_strides, linear, of
from neuron_compile.neff.codegen.program import Node, Tensor
from neuron_compile.neff.codegen.value import INT_BITS, Val
from neuron_compile.neff.codegen.views import Indices

if TYPE_CHECKING:
    from neuron_compile.neff.codegen.evaluate import Evaluator

OP = "stablehlo.rng_bit_generator"
ELEMENT_NANOSECONDS = 1.0  # measured with 64 lanes

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS = 10
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = 0xFFFFFFFF


def random_element(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    """Result 0 is the new state, result 1 the bits."""
    del mask  # reads nothing at a masked index
    stream = _Stream(v, node)
    if node.result == 0:
        return stream.advanced(at[0])
    return stream.element(linear(at, contiguous_strides(node.shape)))


class _Stream:
    """One generator: `words` per block, each in a 64-bit lane (upper half undefined)."""

    def __init__(self, v: Evaluator, node: Node) -> None:
        self.v, self.node, self.e = v, node, v.e
        self.philox = node.attributes["rng_algorithm"] != "THREE_FRY"
        self.words = 4 if self.philox else 2
        state = node.operands[0]
        sizes = (2, 3) if self.philox else (2,)
        if state.elem != "ui64" or state.tensor.size not in sizes:
            raise CodegenError(
                f"random bits from a state of {state.tensor.size} x {state.elem}",
                why=f"{node.attributes['rng_algorithm']} needs tensor<{sizes[-1]}xui64>",
            )
        # The bits' type decides how many words an element takes, also for the new state.
        self.bits: Tensor = node.attributes["results"][1]
        self.elem = self.bits.signless
        if self.elem not in INT_BITS or self.elem == "i1":
            raise CodegenError(f"random bits of type {self.elem}", why="they must be integers")
        self.wide = self.elem == "i64"
        self.per_block = self.words // (2 if self.wide else 1)
        with v.vector(None):
            self.state = [v.value(state, (constant(i),)) for i in range(state.tensor.size)]

    # -- results ---------------------------------------------------------------------------------

    def advanced(self, index: Index) -> Val:
        """Element `index` of the state after this op."""
        e = self.e
        used = e.index(-(-self.bits.size // self.per_block))
        low = e.add(self.state[1], used)
        following = [self.state[0], low]
        if len(self.state) == 3:
            carry = e.cast("arith.extui", e.compare("ult", low, used), "i64")
            following.append(e.add(self.state[2], carry))
        lanes = self.v.lane.lanes if self.v.lane and self.v.varies(index) else 0
        where = self.v.lanes_of(index) if lanes else self.v.scalar(index)
        result = following[-1]
        for i in range(len(following) - 2, -1, -1):
            here = e.compare("eq", where, e.const("i64", i, lanes))
            result = e.select(here, following[i], result)
        return result

    def element(self, offset: Index) -> Val:
        """The bits of linear element `offset`."""
        v, e = self.v, self.e
        if not v.varies(offset):
            return self._picked(v.scalar(offset))
        assert v.lane is not None
        lane = v.lane
        rest = offset + of(lane.variable) * -1
        whole = (
            not v.varies(rest)
            and rest.is_multiple(self.per_block)
            and lane.lanes % self.per_block == 0
        )
        if not whole:
            return self._picked(v.lanes_of(offset))
        count = lane.lanes // self.per_block
        block = v.scalar(rest // self.per_block)
        if count == 1:
            return self._interleaved(self._block(e.splat(block, 1)))
        return self._interleaved(self._block(e.add(e.splat(block, count), e.lane_ids(count))))

    def _picked(self, offset: Val) -> Val:
        """Each lane computes a whole block and keeps its own part.

        For lanes that are no whole blocks.
        """
        e, lanes = self.e, offset.lanes
        shift = self.per_block.bit_length() - 1
        block = e.binary("arith.shrui", offset, e.const("i64", shift, lanes))
        number = e.binary("arith.andi", offset, e.const("i64", self.per_block - 1, lanes))
        parts = self._parts(self._block(block))
        result = parts[-1]
        for i in range(len(parts) - 2, -1, -1):
            here = e.compare("eq", number, e.const("i64", i, lanes))
            result = e.select(here, parts[i], result)
        return result if self.wide else e.cast("arith.trunci", result, self.elem)

    def _parts(self, words: Sequence[Val]) -> list[Val]:
        return self._pairs(words) if self.wide else list(words)

    def _pairs(self, words: Sequence[Val]) -> list[Val]:
        """Two words as one of 64 bits."""
        e = self.e
        thirty_two = e.const("i64", 32, words[0].lanes)
        return [
            e.binary("arith.ori", self._low(a), e.binary("arith.shli", b, thirty_two))
            for a, b in zip(words[::2], words[1::2], strict=True)
        ]

    def _interleaved(self, words: Sequence[Val]) -> Val:
        """The words of neighbouring blocks in the order of the stream."""
        e = self.e
        pairs = self._pairs(words)
        value = pairs[0]
        if len(pairs) == 2:
            n = value.lanes
            value = e.shuffle(value, pairs[1], [i // 2 + n * (i % 2) for i in range(2 * n)])
        if self.wide:
            return value
        value = e.bitcast_lanes(value, "i32", 2 * value.lanes)
        return value if self.elem == "i32" else e.cast("arith.trunci", value, self.elem)

    # -- ciphers ---------------------------------------------------------------------------------

    def _low(self, x: Val) -> Val:
        return self.e.binary("arith.andi", x, self.e.const("i64", _WORD, x.lanes))

    def _halves(self, x: Val) -> tuple[Val, Val]:
        return x, self.e.binary("arith.shrui", x, self.e.const("i64", 32, x.lanes))

    def _block(self, number: Val) -> list[Val]:
        e = self.e
        count = e.add(*e.match(number, self.state[1]))
        return self._philox(count, number) if self.philox else self._threefry(count)

    def _philox(self, count: Val, number: Val) -> list[Val]:
        e, lanes = self.e, count.lanes
        counter = [*self._halves(count), e.const("i64", 0, lanes), e.const("i64", 0, lanes)]
        if len(self.state) == 3:
            carry = e.cast("arith.extui", e.compare("ult", count, number), "i64")
            counter[2:] = self._halves(e.add(*e.match(self.state[2], carry)))
        keys = list(self._halves(self.state[0]))
        for r in range(_PHILOX_ROUNDS):
            if r:
                keys = [self._low(e.add(k, e.index(w))) for k, w in zip(keys, _WEYL, strict=True)]
            a, b = (
                e.mul(self._low(counter[i]), e.const("i64", m, lanes))
                for i, m in ((0, _MULTIPLIERS[0]), (2, _MULTIPLIERS[1]))
            )
            counter = [
                self._mixed(self._halves(b)[1], counter[1], keys[0]),
                b,
                self._mixed(self._halves(a)[1], counter[3], keys[1]),
                a,
            ]
        return counter

    def _mixed(self, *values: Val) -> Val:
        first, *rest = self.e.match(*values)
        for x in rest:
            first = self.e.binary("arith.xori", first, x)
        return first

    def _threefry(self, count: Val) -> list[Val]:
        """In 32-bit lanes: additions and rotations."""
        e = self.e
        x, y = (e.cast("arith.trunci", h, "i32") for h in self._halves(count))
        first, second = (e.cast("arith.trunci", h, "i32") for h in self._halves(self.state[0]))
        third = self._mixed(e.const("i32", _PARITY), first, second)
        keys = (first, second, third)
        x, y = e.add(*e.match(x, keys[0])), e.add(*e.match(y, keys[1]))
        for group in range(5):
            for rotation in _ROTATIONS[group % 2]:
                x = e.add(x, y)
                y = self._mixed(_rotated(e, y, rotation), x)
            x = e.add(*e.match(x, keys[(group + 1) % 3]))
            bumped = e.add(keys[(group + 2) % 3], e.const("i32", group + 1))
            y = e.add(*e.match(y, bumped))
        return [e.cast("arith.extui", w, "i64") for w in (x, y)]


def _rotated(e: Emitter, x: Val, bits: int) -> Val:
    left = e.binary("arith.shli", x, e.const("i32", bits, x.lanes))
    right = e.binary("arith.shrui", x, e.const("i32", 32 - bits, x.lanes))
    return e.binary("arith.ori", left, right)
