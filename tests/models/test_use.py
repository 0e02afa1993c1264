"""Models as they are used: trained for some steps, generating, with new lengths, in train mode."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers as hf

import neuron_compile
from tests.closeness import assert_no_farther, ulps
from tests.models.zoo import call, make

BACKEND = "neuron"


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_training_follows_eager(name: str) -> None:
    """Ten steps of AdamW: the losses fall, and stay together as far as rounding lets them."""
    model, inputs = make(name, torch.float32)
    losses = {}
    for side, trained in (("eager", model), ("neuron", copy.deepcopy(model))):
        step = call if side == "eager" else torch.compile(call, backend=BACKEND, fullgraph=True)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
        losses[side] = []
        for _ in range(10):
            optimizer.zero_grad()
            loss, _ = step(trained, inputs)
            loss.backward()
            optimizer.step()
            losses[side].append(float(loss.detach()))
    assert losses["eager"][-1] < losses["eager"][0]
    torch.testing.assert_close(losses["neuron"], losses["eager"], rtol=1e-3, atol=1e-3)


def test_batch_norm_in_train_mode() -> None:
    """Running statistics are inputs that the graph changes; they follow eager's."""
    model, inputs = make("resnet", torch.float32)
    model.train()
    exact, ours = copy.deepcopy(model).double(), copy.deepcopy(model)
    call(model, inputs)[0].backward()
    call(exact, {**inputs, "pixel_values": inputs["pixel_values"].double()})[0].backward()
    torch.compile(call, backend=BACKEND, fullgraph=True)(ours, inputs)[0].backward()
    buffers = dict(model.named_buffers()), dict(exact.named_buffers()), dict(ours.named_buffers())
    for name, eager in buffers[0].items():
        assert_no_farther(buffers[2][name], eager, buffers[1][name], name)
    assert all(int(b) == 1 for k, b in buffers[2].items() if k.endswith("num_batches_tracked"))
    floor = ulps(torch.float32, 0.1 * max(float(p.grad.abs().max()) for p in exact.parameters()))
    for (name, p), q, r in zip(
        model.named_parameters(), exact.parameters(), ours.parameters(), strict=True
    ):
        assert_no_farther(r.grad, p.grad, q.grad, name, floor=floor)


def test_new_lengths_need_no_new_capture() -> None:
    """After a second length Dynamo hands over a symbolic one; each further one just works."""
    model, _ = make("llama", torch.float32)
    compiled = torch.compile(model, backend=BACKEND)
    neuron_compile.reset_stats()
    with torch.no_grad():
        for length in (5, 8, 13, 21, 8):
            ids = torch.randint(3, 90, (2, length))
            ours, eager = compiled(input_ids=ids).logits, model(input_ids=ids).logits
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert neuron_compile.stats()["graphs"] == 4


def test_dropout_is_random_but_reproducible() -> None:
    layer = torch.nn.TransformerEncoderLayer(48, 3, 80, dropout=0.2, batch_first=True).train()
    compiled = torch.compile(layer, backend=BACKEND, fullgraph=True)
    x = torch.randn(2, 11, 48)
    torch.manual_seed(5)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(5)
    assert torch.equal(compiled(x), first)
    assert not torch.equal(first, second)
    assert torch.isfinite(first).all()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation(cache: str) -> None:
    """Greedy decoding with a key-value cache gives eager's tokens."""
    config = hf.LlamaConfig(
        vocab_size=101, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = hf.LlamaForCausalLM(config).eval()
    ids = torch.randint(3, 101, (1, 7))
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    if cache == "static":
        options["cache_implementation"] = "static"
    expected = model.generate(ids, **options)
    model.forward = torch.compile(model.forward, backend=BACKEND)
    assert torch.equal(model.generate(ids, **options), expected)


def test_a_large_vocabulary_before_a_norm() -> None:
    """Rows of a table that fits no cache, as in every language model's first kernel."""
    model = torch.nn.Sequential(torch.nn.Embedding(5000, 384), torch.nn.LayerNorm(384))
    ids = torch.randint(5000, (2, 30))
    compiled = torch.compile(model, backend="neuron")
    torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-5, atol=1e-5)
