"""Kernels for `contract` groups.

Choose the operands' roles, put A in memory, fuse or split the epilogue.

In: a `Group` with one dot_general or convolution. Out: its kernels. What the matrix-product
kernel cannot take in stride is computed by loop kernels before or after it, through scratch
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neuron_compile.neff.codegen import domain, dot_rows, thin_gemm
from neuron_compile.neff.codegen.accesses import in_memory
from neuron_compile.neff.codegen.contraction import Contraction, contraction_of
from neuron_compile.neff.codegen.dot_rows import DotRows
from neuron_compile.neff.codegen.elementwise import compute_elem
from neuron_compile.neff.codegen.epilogue import Inverse, invert
from neuron_compile.neff.codegen.gemm import (
    GemmKernel,
    is_paired,
    lane_cost,
    tile_shape,
    tile_time,
)
from neuron_compile.neff.codegen.gemm_blocked import BlockedGemm
from neuron_compile.neff.codegen.gemm_blocked import pays as blocking_pays
from neuron_compile.neff.codegen.index import Index, Var, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root, kernels_of
from neuron_compile.neff.codegen.macs import CONTRACTIONS
from neuron_compile.neff.codegen.memory_plan import tensor_bytes
from neuron_compile.neff.codegen.program import Group, Node, Tensor
from neuron_compile.neff.codegen.thin_gemm import ThinGemm
from neuron_compile.neff.codegen.value import bytes_of
from neuron_compile.neff.target import Target

# Addresses this far apart share a set of the first-level cache: 64 sets of 64 bytes.
SET_BYTES = 4096
# Rows of a tile that may share a set, together with the rows of B that pass: measured with 12 lines
# a set (48 KiB); caches of 8 lines were not at hand.
SAME_SET_ROWS = 8


def contract_kernels(group: Group, name: str, target: Target) -> list[Kernel]:
    """Kernels of a whole group."""
    leaves = {p: i for i, p in enumerate(group.parameters)}
    first = len(leaves)
    outputs = zip(group.results, group.outputs, strict=True)
    roots = [Root(n, o, first + i) for i, (n, o) in enumerate(outputs)]
    node = next(n for n in group.nodes() if n.op in CONTRACTIONS)
    scratch: list[int] = []
    made = product_kernels(node, roots, leaves, Scratch(first + len(roots), scratch), name, target)
    return [replace(made[0], scratch=tuple(scratch)), *made[1:]] if made else []


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch memory of a group: pointer numbers from `first` on, sizes in bytes."""

    first: int
    sizes: list[int]

    def root(self, node: Node, output: Tensor) -> Root:
        """A root that stores `node` into new scratch memory."""
        self.sizes.append(tensor_bytes(output))
        return Root(node, output, self.first + len(self.sizes) - 1)


def product_kernels(
    node: Node,
    roots: Sequence[Root],
    leaves: Mapping[Node, int],
    scratch: Scratch,
    name: str,
    target: Target,
) -> list[Kernel]:
    """Kernels that store `roots`, all of which use the contraction `node`.

    Falls back to pulling where the product is too small for panels.
    """
    roots = [r for r in roots if r.output.size]
    if not roots:
        return []
    choices = _choices(node)
    if not _pays(choices[0]) and not any(_few_rows_kernel(c, leaves, target) for c in choices):
        return kernels_of(roots, leaves, name, target)
    return _Contract(node, roots, leaves, scratch, name, target).kernels()


def _choices(node: Node) -> list[Contraction]:
    """The product with each operand as A, where both can be."""
    if node.op != "stablehlo.dot_general":
        return [contraction_of(node)]
    return [contraction_of(node), contraction_of(node, swap=True)]


def _few_rows_kernel(
    c: Contraction, leaves: Mapping[Node, int], target: Target
) -> type[DotRows | ThinGemm] | None:
    """What multiplies few rows with weights where they lie: along k or along the columns."""
    if dot_rows.pays(c, leaves, target):
        return DotRows
    return ThinGemm if thin_gemm.pays(c, leaves, target) else None


def _pays(c: Contraction) -> bool:
    """Packing a panel must be worth it: several rows use each packed element."""
    return c.m >= 4 and c.n >= 4 and c.k >= 4


class _Contract:
    """One product's kernels in order: A's copy, the product, what could not be fused."""

    def __init__(
        self,
        node: Node,
        roots: Sequence[Root],
        leaves: Mapping[Node, int],
        scratch: Scratch,
        name: str,
        target: Target,
    ) -> None:
        self.node, self.roots, self.scratch = node, roots, scratch
        self.name, self.target = name, target
        self.leaves = dict(leaves)

    def kernels(self) -> list[Kernel]:
        inverses = [(r, invert(r.node, self.node, self.leaves.__contains__)) for r in self.roots]
        fused = [(r, i) for r, i in inverses if i is not None]
        after = [r for r, i in inverses if i is None]
        stored = dict(self.leaves)
        if after:
            root = self.scratch.root(self.node, self.node.tensor)
            itself = invert(self.node, self.node, self.leaves.__contains__)
            assert itself is not None, "a tensor is its own inverse"
            fused.append((root, itself))
            stored[self.node] = root.number
        last = kernels_of(after, stored, f"{self.name}_after", self.target)
        for c in _choices(self.node):
            few_rows = _few_rows_kernel(c, self.leaves, self.target)
            if few_rows is not None:
                before, c = self._rows_along_k(c)
                few = few_rows(c, fused, self.leaves, self.name, self.target)
                return [*before, few.kernel(), *last]
        c = self._roles(fused)
        if blocking_pays(c):
            blocked = BlockedGemm(
                c,
                fused,
                self.leaves,
                self.name,
                self.target,
                reads_a=reads_fast_in_place(c, self.leaves, self.target),
            )
            return [blocked.kernel(), *last]
        before = []
        if not reads_in_place(c, self.leaves, self.target):
            before, c = self._copy_a(c)
        return [*before, *self._product(c, fused), *last]

    def _rows_along_k(self, c: Contraction) -> tuple[list[Kernel], Contraction]:
        """A with k contiguous: as it is, or after copying its few rows."""
        place = _place_of_a(c, self.leaves, self.target)
        return ([], c) if place is not None and place[0] == 1 else self._copy_a(c)

    def _product(self, c: Contraction, fused: Sequence[tuple[Root, Inverse]]) -> list[Kernel]:
        """The product itself, after packing B where that is a kernel of its own."""
        gemm = GemmKernel(c, fused, self.leaves, self.name, self.target)
        if not gemm.packs_ahead():
            return [gemm.kernel()]
        packed = self.scratch.root(c.b, gemm.packed_tensor).number
        packer = GemmKernel(c, fused, self.leaves, self.name, self.target)
        return [packer.pack_kernel(packed), gemm.kernel(packed)]

    def _copy_a(self, c: Contraction) -> tuple[list[Kernel], Contraction]:
        """A copy of A with k contiguous, in the type that the product reads."""
        elem = "bf16" if is_paired(c, self.target) else _computed_elem(c)
        strides = _k_last(c)
        root = self.scratch.root(c.a, Tensor(c.a.shape, elem, strides))
        kernels = kernels_of([root], self.leaves, f"{self.name}_a", self.target)
        copy = Node("copy", (), root.output)
        self.leaves[copy] = root.number
        lhs, rhs = c.spec.nodes[0].operands
        operands = (copy, rhs) if c.first_is_a else (lhs, copy)
        swap = c.node.op == "stablehlo.dot_general" and not c.first_is_a
        return kernels, contraction_of(self.node, swap=swap, operands=operands)

    def _roles(self, fused: Sequence[tuple[Root, Inverse]]) -> Contraction:
        """Which operand is A: by the product's time, scattered stores, and copies of A."""
        return min(_choices(self.node), key=lambda c: self._time(c, fused))

    def _time(self, c: Contraction, fused: Sequence[tuple[Root, Inverse]]) -> float:
        """Estimated cycles for one batch entry."""
        time = tile_time(c, self.target)
        if not reads_in_place(c, self.leaves, self.target):
            time += 0.5 * c.m * c.k
        n = domain.variable(c.n)
        batch = tuple(of(domain.variable(x)) for x in c.batch)
        row = of(domain.variable(c.m))
        for root, inverse in fused:
            where = inverse.root_at(c.at(batch, row, of(n)))
            time += c.m * c.n * lane_cost(linear(where, root.output.strides), n)
        return time


def _computed_elem(c: Contraction) -> str:
    return compute_elem(c.node.tensor)


def _k_last(c: Contraction) -> tuple[int, ...]:
    """Strides of A's copy: the dimensions that vary with k innermost, in the order of k."""
    k = [domain.variable(n) for n in c.reduced]
    zero = tuple(Index(0) for _ in c.batch)
    at = c.position(zero, unravel(Index(0), c.rows), (Index(0),) * len(c.columns))
    source = c.spec.sources(at, tuple(of(v) for v in k))[0 if c.first_is_a else 1]
    order: list[int] = []
    for v in reversed(k):
        order += [d for d, i in enumerate(source.indices) if v in i.variables()]
    order += [d for d in reversed(range(len(c.a.shape))) if d not in order]
    strides = [1] * len(order)
    step = 1
    for d in order:
        strides[d] = step
        step *= max(c.a.shape[d], 1)
    return tuple(strides)


def reads_in_place(c: Contraction, leaves: Mapping[Node, int], target: Target) -> bool:
    """Whether the product can read A where it lies: an affine access in the right element type."""
    return _place_of_a(c, leaves, target) is not None


def reads_fast_in_place(c: Contraction, leaves: Mapping[Node, int], target: Target) -> bool:
    """Whether A can be read in place at speed: along k, the rows of a tile side by side in cache.

    They lie in different sets of it, or are so few that one set holds them.
    """
    place = _place_of_a(c, leaves, target)
    if place is None:
        return False
    step, row_bytes = place
    few = tile_shape(c, target).rows <= SAME_SET_ROWS
    return step == 1 and (few or row_bytes % SET_BYTES != 0)


def _place_of_a(
    c: Contraction, leaves: Mapping[Node, int], target: Target
) -> tuple[int, int] | None:
    """A's step along k in elements and from row to row in bytes; None if it must be computed."""
    m, k = domain.variable(c.m), domain.variable(c.k)
    batch = tuple(of(domain.variable(x)) for x in c.batch)
    source = c.a_source(batch, of(m), of(k))
    found = in_memory(source, leaves.__contains__)
    if found is None:
        return None
    leaf, offset = found
    if any(not isinstance(a, Var) for a, _ in offset.terms):
        return None
    if is_paired(c, target):
        fits = leaf.elem == "bf16" and offset.coefficient(k) == 1 and leaf is source.operand
    else:
        fits = leaf.tensor.signless == _computed_elem(c)
    if not fits:
        return None
    return offset.coefficient(k), offset.coefficient(m) * bytes_of(leaf.tensor.stored)
