"""Random bits for the interpreter, which has none: constants in the place of `rng_bit_generator`.

In: a lowered module and the random state. Out: the module changed in place. Invariant: the bits are
those of Philox4x32-10 as published: word i of the stream is word i % 4 of block counter + i // 4.
"""

from __future__ import annotations

import math

import numpy as np
from torch_mlir import ir

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def words(key: int, counter: int, count: int) -> np.ndarray:
    """The first `count` 32-bit words of a stream."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64) + np.uint64(counter)
    low = np.uint64(0xFFFFFFFF)
    c = [blocks & low, blocks >> np.uint64(32), np.zeros_like(blocks), np.zeros_like(blocks)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(_MULTIPLIERS[0]), c[2] * np.uint64(_MULTIPLIERS[1])
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            b & low,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[i] + _WEYL[i]) & 0xFFFFFFFF for i in range(2)]
    return np.stack(c, axis=1).reshape(-1)[:count].astype(np.uint32)


def put_bits_in_place(module: ir.Module, state: tuple[int, int]) -> list[tuple[int, int]]:
    """Replace every generator by its bits; gives (start block, number of words) of each draw."""
    block = module.body.operations[0].regions[0].blocks[0]
    drawn = []
    for op in list(block.operations):
        if op.operation.name != "stablehlo.rng_bit_generator":
            continue
        start = state[1] + _offset(op.operands[0])
        type_ = ir.RankedTensorType(op.results[1].type)
        wide = ir.IntegerType(type_.element_type).width == 64
        count = math.prod(type_.shape) * (2 if wide else 1)
        bits = words(state[0], start, count)
        if wide:
            bits = bits.view(np.uint64)
        with ir.InsertionPoint(op), op.operation.location:
            value = ir.DenseElementsAttr.get(bits, signless=False, shape=list(type_.shape))
            constant = ir.Operation.create(
                "stablehlo.constant", results=[type_], attributes={"value": value}
            )
        op.results[1].replace_all_uses_with(constant.result)
        op.erase()
        drawn.append((start, count))
    return drawn


def _offset(state: ir.Value) -> int:
    """What is added to the counter of the function's argument."""
    if isinstance(state.owner, ir.Block):
        return 0
    add = state.owner
    assert add.name == "stablehlo.add"
    assert isinstance(add.operands[0].owner, ir.Block)
    value = np.array(ir.DenseElementsAttr(add.operands[1].owner.attributes["value"]))
    assert value[0] == 0
    return int(value[1])
