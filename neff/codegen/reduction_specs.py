"""What `reduce`, `reduce_window`, `dot_general` and `convolution` read: one kind of loop.

In: a node. Out: a `Spec`: the reduced extents, and where the operands are read for an index of
the result and one of the reduced space. Code generation and access tracing walk the same mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from neuron_compile.neff.codegen import views
from neuron_compile.neff.codegen.index import ZERO, Index
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.views import Indices, Source

OPS = (
    "stablehlo.reduce",
    "stablehlo.reduce_window",
    "stablehlo.dot_general",
    "stablehlo.convolution",
)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a reduction reads: `sources(at, r)` for result index `at` and reduced index `r`."""

    nodes: tuple[
        Node, ...
    ]  # all results of the operation, or of sibling operations reduced together
    extents: tuple[int, ...]
    sources: Callable[[Indices, Indices], list[Source]]


def spec_of(node: Node) -> Spec:
    return _SPECS[node.op](node)


def _reduce_spec(node: Node) -> Spec:
    dimensions = node.attributes["dimensions"]
    inputs = node.operands[: len(node.operands) // 2]
    shape = inputs[0].shape
    kept = [d for d in range(len(shape)) if d not in dimensions]

    def sources(at: Indices, r: Indices) -> list[Source]:
        indices = [ZERO] * len(shape)
        for d, i in zip(kept, at, strict=True):
            indices[d] = i
        for d, i in zip(dimensions, r, strict=True):
            indices[d] = i
        return [Source(o, tuple(indices)) for o in inputs]

    return Spec((node,), tuple(shape[d] for d in dimensions), sources)


def _window_spec(node: Node) -> Spec:
    rank = len(node.shape)
    ones = (1,) * rank
    a = node.attributes
    strides = a.get("window_strides", ones)
    dilation = a.get("window_dilations", ones)
    base = a.get("base_dilations", ones)
    padding = np.asarray(a.get("padding", np.zeros((rank, 2), np.int64)))
    inputs = node.operands[: len(node.operands) // 2]

    def sources(at: Indices, r: Indices) -> list[Source]:
        where = tuple(i * s + j * d for i, s, j, d in zip(at, strides, r, dilation, strict=True))
        low = tuple(int(x) for x in padding[:, 0])
        return [views.padded(o, where, low, tuple(b - 1 for b in base)) for o in inputs]

    return Spec((node,), tuple(a["window_dimensions"]), sources)


def _dot_spec(node: Node) -> Spec:
    lhs, rhs = node.operands
    d = node.attributes["dot_dimension_numbers"]
    lb, rb = d.get("lhs_batching_dimensions", ()), d.get("rhs_batching_dimensions", ())
    lc, rc = d.get("lhs_contracting_dimensions", ()), d.get("rhs_contracting_dimensions", ())
    lf = [i for i in range(len(lhs.shape)) if i not in (*lb, *lc)]
    rf = [i for i in range(len(rhs.shape)) if i not in (*rb, *rc)]

    def place(rank: int, *groups: tuple[Sequence[int], Sequence[Index]]) -> Indices:
        indices = [ZERO] * rank
        for dims, values in groups:
            for dim, value in zip(dims, values, strict=True):
                indices[dim] = value
        return tuple(indices)

    def sources(at: Indices, r: Indices) -> list[Source]:
        batch, m, n = at[: len(lb)], at[len(lb) : len(lb) + len(lf)], at[len(lb) + len(lf) :]
        left = place(len(lhs.shape), (lb, batch), (lf, m), (lc, r))
        right = place(len(rhs.shape), (rb, batch), (rf, n), (rc, r))
        return [Source(lhs, left), Source(rhs, right)]

    return Spec((node,), tuple(lhs.shape[i] for i in lc), sources)


def _convolution_spec(node: Node) -> Spec:
    """Reduced index: input feature within the group, then the kernel's spatial positions."""
    lhs, rhs = node.operands
    a = node.attributes
    layout = a["dimension_numbers"]
    rank = len(lhs.shape) - 2
    ones = (1,) * rank
    strides, padding = (
        a.get("window_strides", ones),
        np.asarray(a.get("padding", np.zeros((rank, 2), np.int64))),
    )
    base, dilation = a.get("lhs_dilation", ones), a.get("rhs_dilation", ones)
    reversal = a.get("window_reversal", (False,) * rank)
    spatial = [str(i) for i in range(rank)]
    where = {name: {n: i for i, n in enumerate(layout[name])} for name in ("lhs", "rhs", "out")}
    features = rhs.shape[where["rhs"]["i"]]
    kernel = tuple(rhs.shape[where["rhs"][s]] for s in spatial)
    outputs = node.shape[where["out"]["f"]]
    batch_groups, feature_groups = a.get("batch_group_count", 1), a.get("feature_group_count", 1)
    low = [0] * len(lhs.shape)
    between = [0] * len(lhs.shape)
    for k, s in enumerate(spatial):
        low[where["lhs"][s]], between[where["lhs"][s]] = int(padding[k, 0]), base[k] - 1

    def sources(at: Indices, r: Indices) -> list[Source]:
        out = where["out"]
        feature = at[out["f"]]
        left, right = [ZERO] * len(lhs.shape), [ZERO] * len(rhs.shape)
        left[where["lhs"]["b"]], left[where["lhs"]["f"]] = at[out["b"]], r[0]
        if feature_groups > 1:
            left[where["lhs"]["f"]] = feature // (outputs // feature_groups) * features + r[0]
        if batch_groups > 1:
            batch = lhs.shape[where["lhs"]["b"]] // batch_groups
            left[where["lhs"]["b"]] = feature // (outputs // batch_groups) * batch + at[out["b"]]
        right[where["rhs"]["o"]], right[where["rhs"]["i"]] = feature, r[0]
        for k, s in enumerate(spatial):
            left[where["lhs"][s]] = at[out[s]] * strides[k] + r[k + 1] * dilation[k]
            right[where["rhs"][s]] = r[k + 1] * -1 + (kernel[k] - 1) if reversal[k] else r[k + 1]
        return [
            views.padded(lhs, tuple(left), tuple(low), tuple(between)),
            Source(rhs, tuple(right)),
        ]

    return Spec((node,), (features, *kernel), sources)


_SPECS: dict[str, Callable[[Node], Spec]] = {
    "stablehlo.reduce": _reduce_spec,
    "stablehlo.reduce_window": _window_spec,
    "stablehlo.dot_general": _dot_spec,
    "stablehlo.convolution": _convolution_spec,
}
