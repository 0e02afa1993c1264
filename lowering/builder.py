"""The Builder handed to every emitter: StableHLO ops as methods, each with the node's location.

In: builtin-tensor values. Out: builtin-tensor values at the insertion point of the function being
built. Invariant: no two random draws of a function share bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo

from neuron_compile.lowering.builder_elementwise import ElementwiseOps
from neuron_compile.lowering.builder_structured import StructuredOps

Value = ir.Value

_RANDOM_STATE = (2,)  # uint64 key and counter
# In blocks of 128 bits: a draw may take 2**42 words of 32 bits before it meets the next one.
_DRAW_DISTANCE = 1 << 40


class Builder(ElementwiseOps, StructuredOps):
    """See the base classes for the ops; here is what depends on the function as a whole."""

    def __init__(self, context: ir.Context, entry: ir.Block) -> None:
        super().__init__(context, entry)
        self._random_state: Value | None = None
        self._draws = 0

    @property
    def uses_random(self) -> bool:
        """Whether random bits were asked for, so that the function has the state argument."""
        return self._random_state is not None

    def random_bits(self, shape: Sequence[int], dtype: torch.dtype = torch.uint32) -> Value:
        """Fresh uniform bits (torch.uint32 or torch.uint64) from Philox.

        The first use adds the function's last argument `tensor<2xui64>` (key, counter). Draw number
        k starts at counter + k * 2**40, so that draws share no bits (T026) and depend only on the
        argument, not on each other: they may run in any order.
        """
        if self._random_state is None:
            self._random_state = self.entry.add_argument(
                self.types.tensor(_RANDOM_STATE, torch.uint64), ir.Location.unknown(self.context)
            )
        state = self._random_state
        if self._draws:
            offset = torch.tensor([0, self._draws * _DRAW_DISTANCE], dtype=torch.uint64)
            state = self.add(state, self.array(offset))
        self._draws += 1
        op = self.op(
            "stablehlo.rng_bit_generator",
            [state],
            [state.type, self.types.tensor(shape, dtype)],
            {"rng_algorithm": _stablehlo.RngAlgorithmAttr.get("PHILOX")},
        )
        return op.results[1]
