"""Inputs that begin elsewhere in their storage at each call: Dynamo guards sizes and strides, not
offsets, and `as_strided` counts from the storage.
"""

from __future__ import annotations

import pytest
import torch

import neuron_compile
from neuron_compile import compiler

OFFSETS = (3, 0, 10, 7)


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path))
    compiler.forget_executables()
    neuron_compile.reset_stats()


def storage(**kinds) -> torch.Tensor:
    return torch.arange(60, **{"dtype": torch.float32, **kinds})


def block(offset: int, **kinds) -> torch.Tensor:
    """20 elements of a longer storage, from `offset` on."""
    return storage(**kinds)[offset : offset + 20]


VIEWS = {
    "the beginning": lambda x: x.as_strided((3, 4), (4, 1), 0) * 2,
    "a fixed place": lambda x: x.as_strided((3, 4), (1, 4), 5) * 2,
    "what lies behind": lambda x: x.as_strided((3, 4), (4, 1), 40) + x.sum(),
    "its own place": lambda x: x.as_strided((3, 4), (4, 1)) * 2,
    "a copy": lambda x: torch.as_strided_copy(x, (3, 4), (4, 1), 5) * 2,
    "of a view": lambda x: x[2:].as_strided((3, 4), (4, 1), 5) + x[3:].as_strided((3, 4), (4, 1)),
    "of a reshaped view": lambda x: x.view(4, 5).t().as_strided((2, 2), (20, 1), 6) + x[0],
    "of one of several": lambda x: x.split(10)[1].as_strided((5,), (2,), 1) + x[:5],
    "beside the input": lambda x: (x.view(4, 5) @ x.view(5, 4), x.as_strided((4,), (3,), 2) + 1),
    "as it is": lambda x: (x.as_strided((3, 4), (4, 1), 5), x + 1, x),
    "of something computed": lambda x: (x + 1).as_strided((3, 4), (4, 1), 5),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("case", VIEWS)
def test_views_show_what_eager_shows(case, dynamic) -> None:
    f = VIEWS[case]
    compiled = torch.compile(f, backend="neuron", dynamic=dynamic)
    for offset in OFFSETS:
        x = block(offset)
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-6, atol=0)


def test_graphs_that_only_differ_in_the_offset_are_told_apart() -> None:
    """Traced anew at each offset, and looked up in the same cache."""
    for offset in OFFSETS:
        torch._dynamo.reset()
        x = block(offset)
        found = torch.compile(VIEWS["a fixed place"], backend="neuron")(x)
        assert torch.equal(found, VIEWS["a fixed place"](x))


def test_code_is_shared_by_all_offsets_where_only_the_storage_is_shown() -> None:
    compiled = torch.compile(VIEWS["a fixed place"], backend="neuron")
    for offset in OFFSETS:
        compiled(block(offset))
    assert neuron_compile.stats()["compiles"] == 1


def test_code_without_absolute_views_is_shared_by_all_offsets() -> None:
    compiled = torch.compile(VIEWS["its own place"], backend="neuron")
    for offset in OFFSETS:
        compiled(block(offset))
    assert neuron_compile.stats()["graphs"] == 1


def test_storages_of_other_lengths() -> None:
    def f(x):
        return x.as_strided((5,), (4,), 20) * 2

    compiled = torch.compile(f, backend="neuron")
    for length in (60, 50, 60, 41):
        x = torch.arange(float(length))[10:30]
        assert torch.equal(compiled(x), f(x))


def test_inputs_with_gaps() -> None:
    def f(x):
        return x.as_strided((5,), (1,), 7) + x.sum()

    compiled = torch.compile(f, backend="neuron")
    for offset in OFFSETS:
        x = storage()[offset : offset + 40 : 2]
        assert torch.equal(compiled(x), f(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64, torch.bfloat16])
def test_other_dtypes(dtype) -> None:
    def f(x):
        return x.as_strided((5,), (2,), 4).clone()

    compiled = torch.compile(f, backend="neuron")
    for offset in OFFSETS:
        x = (storage(dtype=torch.int64) % 3).to(dtype)[offset : offset + 20]
        assert torch.equal(compiled(x), f(x))


@pytest.mark.parametrize("pending", [torch.conj, torch._neg_view], ids=["conj", "neg"])
def test_conjugation_and_negation_still_to_be_done(pending) -> None:
    def f(x):
        return x.as_strided((5,), (2,), 4) * 2, x + 1

    compiled = torch.compile(f, backend="neuron")
    for offset in OFFSETS:
        x = pending(torch.complex(storage(), storage() / 3)[offset : offset + 20])
        torch.testing.assert_close(compiled(x), f(x))


def test_a_view_of_another_dtype() -> None:
    def f(x):
        return x.view(torch.int32).as_strided((4,), (2,), 12) + 1

    compiled = torch.compile(f, backend="neuron")
    for offset in OFFSETS:
        x = block(offset)
        assert torch.equal(compiled(x), f(x))


def test_changes_through_an_absolute_view() -> None:
    def f(x):
        x.as_strided((3,), (2,), 12).add_(100)
        return x * 2

    compiled = torch.compile(f, backend="neuron")
    for offset in OFFSETS:
        expected, found = block(offset), block(offset)
        assert torch.equal(compiled(found), f(expected))
        assert torch.equal(found._base, expected._base)


def test_a_change_outside_of_the_input_is_an_error() -> None:
    def f(x):
        x.as_strided((3,), (2,), 5).add_(100)
        return x * 2

    compiled = torch.compile(f, backend="neuron")
    compiled(block(0))
    x = block(10)
    with pytest.raises(neuron_compile.UnsupportedOpError, match="reaches outside of its input"):
        compiled(x)
    assert torch.equal(x._base, storage())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("place", [(12,), ()], ids=["absolute", "its own"])
def test_gradients_through_a_view(place) -> None:
    def f(x):
        return (x.as_strided((3, 4), (4, 1), *place).sin() * x[:4]).sum()

    compiled = torch.compile(f, backend="neuron")
    for offset in OFFSETS:
        gradients = []
        for function in (f, compiled):
            leaf = storage().requires_grad_()
            x = (leaf * 0.1)[offset : offset + 20]
            function(x).backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(gradients[1], gradients[0])
