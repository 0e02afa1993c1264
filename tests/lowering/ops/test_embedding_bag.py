"""Bags of embeddings, their gradients and max_norm against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.lowering import find_unsupported
from tests.lowering.samples import examples, integers, tensor
from tests.lowering.single_op import check, graph_of

aten = torch.ops.aten


@examples(30)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(sum),
    mode=st.sampled_from(["sum", "mean", "max"]),
    include_last=st.booleans(),
    padding=st.sampled_from([None, 2]),
    weighted=st.booleans(),
)
def test_bags(sizes, mode, include_last, padding, weighted) -> None:
    table, ids = tensor([5, 3]), integers([sum(sizes)], 0, 5)
    ends = torch.tensor([0, *sizes]).cumsum(0)
    offsets = ends if include_last else ends[:-1]
    weights = tensor([len(ids)], seed=1) if weighted and mode == "sum" else None
    kwargs = {"mode": mode, "include_last_offset": include_last, "padding_idx": padding}
    check(
        lambda *a: F.embedding_bag(a[0], a[1], a[2], per_sample_weights=a[3], **kwargs),
        ids,
        table,
        offsets,
        weights,
        tolerance=1e-5,
    )

    def gradients(ids, table, offsets, weights):
        with torch.enable_grad():
            wanted = [t.requires_grad_() for t in (table, weights) if t is not None]
            out = F.embedding_bag(ids, table, offsets, per_sample_weights=weights, **kwargs)
            return torch.autograd.grad(out, wanted, torch.cos(out.detach()))

    table = table.clone().requires_grad_()
    check(gradients, ids, table, offsets, weights, tolerance=1e-5)


def test_scaling_by_frequency_is_refused() -> None:
    def gradient(table, ids, offsets):
        with torch.enable_grad():
            table = table.detach().requires_grad_()
            out = F.embedding_bag(ids, table, offsets, scale_grad_by_freq=True, mode="sum")
            return torch.autograd.grad(out.sum(), table)

    args = (tensor([5, 3]), torch.tensor([0, 0, 1]), torch.tensor([0, 2]))
    (found,) = find_unsupported(graph_of(gradient, args)[0])
    assert "scale_grad_by_freq" in found.reason


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_max_norm(norm_type) -> None:
    args = (tensor([6, 4]), torch.tensor([1, 3, 3, 0]), 1.2, norm_type)
    check(lambda t, i: aten.embedding_renorm(t, i, *args[2:]), *args[:2], tolerance=1e-5)
