"""The dimension numbers of a dot_general as plain tuples, and back.

In: a dot_general node. Out: `DotDims`. Invariant: the result's dims are the batch dims in order,
then the free dims of the left operand, then those of the right, as StableHLO defines it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir._mlir_libs._stablehlo import DotDimensionNumbers

from neuron_compile.passes.graph import Node


@dataclass(frozen=True, slots=True)
class DotDims:
    """Batch, contracting and free dims of both operands."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]

    @staticmethod
    def of(node: Node) -> DotDims:
        """Reads the attribute of a dot_general."""
        numbers = DotDimensionNumbers(node.op.attributes["dot_dimension_numbers"])
        return DotDims.make(
            tuple(numbers.lhs_batching_dimensions),
            tuple(numbers.rhs_batching_dimensions),
            tuple(numbers.lhs_contracting_dimensions),
            tuple(numbers.rhs_contracting_dimensions),
            len(node.operands[0].shape),
            len(node.operands[1].shape),
        )

    @staticmethod
    def make(
        lhs_batch: tuple[int, ...],
        rhs_batch: tuple[int, ...],
        lhs_contract: tuple[int, ...],
        rhs_contract: tuple[int, ...],
        lhs_rank: int,
        rhs_rank: int,
    ) -> DotDims:
        """Fills in the free dims, which are the others in ascending order."""
        return DotDims(
            lhs_batch,
            rhs_batch,
            lhs_contract,
            rhs_contract,
            tuple(d for d in range(lhs_rank) if d not in lhs_batch + lhs_contract),
            tuple(d for d in range(rhs_rank) if d not in rhs_batch + rhs_contract),
        )

    def attribute(self) -> ir.Attribute:
        """The MLIR attribute."""
        return DotDimensionNumbers.get(
            list(self.lhs_batch),
            list(self.rhs_batch),
            list(self.lhs_contract),
            list(self.rhs_contract),
        )

    def result_shape(self, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> list[int]:
        """The shape of the product of operands of these shapes."""
        return (
            [lhs[d] for d in self.lhs_batch]
            + [lhs[d] for d in self.lhs_free]
            + [rhs[d] for d in self.rhs_free]
        )
