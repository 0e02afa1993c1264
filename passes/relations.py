"""How the dims of a node's result relate to the dims of an operand, as blocks of dims.

In: a node and an operand slot. Out: `Relation`, blocks `(source bits, result bits)` whose dims run
together, plus what the op does to them. Invariant: relations compose, so a chain of views is one.
Bits are dim numbers as a mask; dims of size 1 belong to no block.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_compile.passes.graph import Node
from neuron_compile.passes.ops import ELEMENTWISE


@dataclass(frozen=True, slots=True)
class Relation:
    """One edge from a source value to a node's result.

    `blocks`: pairs of dim masks that index the same coordinates. `inner`: source dims that a
    reduction consumes. `resized`: source dims read at a shifted or partial index (slice, pad, ...).
    `opaque`: the index is unrelated (gather, windows, anchors).
    """

    blocks: tuple[tuple[int, int], ...]
    inner: int = 0
    resized: int = 0
    opaque: bool = False


OPAQUE = Relation((), opaque=True)
_IDENTITY: dict[tuple[int, ...], Relation] = {}


def identity(shape: tuple[int, ...]) -> Relation:
    """The relation of an elementwise op."""
    known = _IDENTITY.get(shape)
    if known is None:
        known = Relation(tuple((1 << d, 1 << d) for d, size in enumerate(shape) if size != 1))
        _IDENTITY[shape] = known
    return known


def squeezed_identity(source: tuple[int, ...], result: tuple[int, ...]) -> Relation:
    """Pairs the dims other than 1 of two shapes in order; no blocks where they differ."""
    left = [d for d, size in enumerate(source) if size != 1]
    right = [d for d, size in enumerate(result) if size != 1]
    if [source[d] for d in left] != [result[d] for d in right]:
        return Relation(())
    return Relation(tuple((1 << s, 1 << r) for s, r in zip(left, right, strict=True)))


def relation(node: Node, slot: int) -> Relation:
    """How `node` reads its operand number `slot` for its (first) result."""
    source = node.operands[slot].shape
    result = node.results[0].shape
    name = node.name
    if name in ELEMENTWISE:
        return identity(source) if source == result else Relation(())  # scalar of select, clamp
    if name == "broadcast_in_dim":
        dims = node.ints("broadcast_dimensions")
        return Relation(tuple((1 << s, 1 << r) for s, r in enumerate(dims) if source[s] != 1))
    if name == "transpose":
        order = node.ints("permutation")
        return Relation(tuple((1 << s, 1 << r) for r, s in enumerate(order) if source[s] != 1))
    if name == "reshape":
        return reshape_relation(source, result)
    if name == "reduce":
        return _reduce_relation(node, slot)
    if name in ("slice", "pad", "concatenate", "dynamic_slice", "reverse"):
        return _resizing_relation(node, slot, source, result)
    if name == "dynamic_update_slice":
        return _resizing_relation(node, slot, source, result) if slot < 2 else Relation(())
    return OPAQUE


def reshape_relation(source: tuple[int, ...], result: tuple[int, ...]) -> Relation:
    """Splits a reshape into its smallest blocks of equal element counts, ones left out."""
    if 0 in source:
        return OPAQUE
    blocks: list[tuple[int, int]] = []
    s = r = 0
    while True:
        while s < len(source) and source[s] == 1:
            s += 1
        while r < len(result) and result[r] == 1:
            r += 1
        if s == len(source) or r == len(result):
            return Relation(tuple(blocks))
        left, right = source[s], result[r]
        left_bits, right_bits = 1 << s, 1 << r
        s += 1
        r += 1
        while left != right:
            if left < right:
                left *= source[s]
                left_bits |= (1 << s) if source[s] != 1 else 0
                s += 1
            else:
                right *= result[r]
                right_bits |= (1 << r) if result[r] != 1 else 0
                r += 1
        blocks.append((left_bits, right_bits))


def _reduce_relation(node: Node, slot: int) -> Relation:
    if slot >= len(node.results):
        return Relation(())  # init value
    dims = node.ints("dimensions")
    shape = node.operands[slot].shape
    blocks = []
    inner = 0
    kept = 0
    for d, size in enumerate(shape):
        if d in dims:
            inner |= 1 << d if size != 1 else 0
            continue
        if size != 1:
            blocks.append((1 << d, 1 << kept))
        kept += 1
    return Relation(tuple(blocks), inner=inner)


def _resizing_relation(
    node: Node, slot: int, source: tuple[int, ...], result: tuple[int, ...]
) -> Relation:
    if node.name == "dynamic_slice" and slot:
        return Relation(())
    if node.name == "pad" and slot == 1:
        return Relation(())
    moved = node.ints("dimensions") if node.name == "reverse" else ()
    blocks = []
    resized = 0
    for d, size in enumerate(source):
        if size != result[d] or d in moved:
            resized |= 1 << d
        if size != 1 and result[d] != 1:
            blocks.append((1 << d, 1 << d))
    return Relation(tuple(blocks), resized=resized)


def compose(first: Relation, second: Relation) -> Relation:
    """`first`: source -> middle, `second`: middle -> result. Blocks that touch grow together."""
    if first.opaque or second.opaque:
        return OPAQUE
    blocks: list[tuple[int, int, int]] = [(s, m, 0) for s, m in first.blocks]
    for middle, result in second.blocks:
        joined_s, joined_m, joined_r = 0, middle, result
        rest = []
        for s, m, r in blocks:
            if m & joined_m:
                joined_s, joined_m, joined_r = joined_s | s, joined_m | m, joined_r | r
            else:
                rest.append((s, m, r))
        rest.append((joined_s, joined_m, joined_r))
        blocks = rest
    return Relation(
        tuple((s, r) for s, _, r in blocks if s and r),
        inner=first.inner | _pull_back(blocks, second.inner),
        resized=first.resized | _pull_back(blocks, second.resized),
    )


def _pull_back(blocks: list[tuple[int, int, int]], middle: int) -> int:
    """The source dims of the blocks that hold one of the middle dims."""
    source = 0
    for s, m, _ in blocks:
        if m & middle:
            source |= s
    return source
