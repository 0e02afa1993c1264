"""Whole models, forward and backward, float32 and bfloat16, judged against a float64 run."""

from __future__ import annotations

import pytest
import torch

from tests.closeness import assert_no_farther, rms_error, ulps
from tests.models.zoo import ZOO, Inputs, call, cast, make, reference

BACKEND = "neuron"
DTYPES = [torch.float32, torch.bfloat16]

Results = dict[str, torch.Tensor]


def forward(step, model: torch.nn.Module, inputs: Inputs) -> Results:
    with torch.no_grad():
        loss, logits = step(model, inputs)
    return {"loss": loss, "logits": logits}


def train(step, model: torch.nn.Module, inputs: Inputs) -> Results:
    model.zero_grad()
    loss, logits = step(model, inputs)
    loss.backward()
    gradients = {f"grad {k}": p.grad for k, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss, "logits": logits, **gradients}


@pytest.mark.parametrize("run", [forward, train])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", list(ZOO))
def test_model(name: str, dtype: torch.dtype, run) -> None:
    model, inputs = make(name, dtype)
    eager = run(call, model, inputs)
    exact = run(call, reference(model), cast(inputs, torch.float64))
    ours = run(torch.compile(call, backend=BACKEND, fullgraph=True), model, inputs)
    assert list(ours) == list(eager)
    gradients = [float(g.abs().max()) for k, g in exact.items() if k.startswith("grad")]
    floors = {
        # The mean over many logits: its error may cancel by luck, theirs do not; and it is rounded.
        "loss": max(
            rms_error(eager["logits"], exact["logits"]),
            ulps(eager["loss"].dtype, float(exact["loss"].detach().abs())),
        ),
        "logits": None,
    }
    # Some gradients are zero but for rounding (a key's bias under softmax).
    for key, value in ours.items():
        floor = floors[key] if key in floors else ulps(dtype, 0.1 * max(gradients))
        assert_no_farther(value, eager[key], exact[key], f"{name} {key}", floor=floor)
