"""Small transformers models with random weights, one per architecture, and inputs for them.

In: a name. Out: a model in evaluation mode and keyword inputs with labels, so that one call gives
logits and a loss. Invariant: no dropout and no download; the same seed gives the same weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

BATCH, LENGTH, VOCABULARY = 2, 19, 101

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Entry:
    """How to build one model, and the inputs of one call."""

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], Inputs]


def _tokens() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def _padded() -> torch.Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, -5:] = 0
    return mask


def _text() -> Inputs:
    ids = _tokens()
    return {"input_ids": ids, "attention_mask": _padded(), "labels": ids.clone()}


def _bert() -> torch.nn.Module:
    return hf.BertForMaskedLM(
        hf.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=80,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def _gpt2() -> torch.nn.Module:
    model = hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=64,
            n_embd=48,
            n_layer=2,
            n_head=3,
            use_cache=False,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    model.loss_type = "ForCausalLM"  # else it logs a warning, which Dynamo cannot trace
    return model


def _llama() -> torch.nn.Module:
    return hf.LlamaForCausalLM(
        hf.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            use_cache=False,
        )
    )


def _qwen2() -> torch.nn.Module:
    return hf.Qwen2ForCausalLM(
        hf.Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            use_cache=False,
            tie_word_embeddings=True,
        )
    )


def _t5() -> torch.nn.Module:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=VOCABULARY,
            d_model=48,
            d_kv=16,
            d_ff=80,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=3,
            dropout_rate=0.0,
            use_cache=False,
            feed_forward_proj="gated-gelu",
            decoder_start_token_id=0,
        )
    )


def _whisper() -> torch.nn.Module:
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=VOCABULARY,
            num_mel_bins=20,
            d_model=48,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=80,
            decoder_ffn_dim=80,
            max_source_positions=15,
            max_target_positions=32,
            use_cache=False,
            dropout=0.0,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    )


def _speech() -> Inputs:
    return {"input_features": torch.randn(BATCH, 20, 30), "labels": _tokens()}


def _vit() -> torch.nn.Module:
    return hf.ViTForImageClassification(
        hf.ViTConfig(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=80,
            image_size=24,
            patch_size=8,
            num_labels=7,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def _resnet() -> torch.nn.Module:
    return hf.ResNetForImageClassification(
        hf.ResNetConfig(
            embedding_size=16,
            hidden_sizes=[16, 24, 32],
            depths=[1, 2, 1],
            layer_type="basic",
            num_labels=7,
        )
    )


def _images(size: int) -> Inputs:
    return {
        "pixel_values": torch.randn(BATCH, 3, size, size),
        "labels": torch.randint(0, 7, (BATCH,)),
    }


def _mixtral() -> torch.nn.Module:
    model = hf.MixtralForCausalLM(
        hf.MixtralConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            intermediate_size=56,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            max_position_embeddings=64,
            use_cache=False,
        )
    )
    # What transformers documents for torch.compile; its default hides the product in a custom op.
    model.set_experts_implementation("batched_mm")
    with torch.no_grad():
        # Random routers are nearly undecided; bfloat16 would then pick other experts than float64.
        for name, parameter in model.named_parameters():
            if name.endswith("gate.weight"):
                parameter.mul_(40.0)
    return model


ZOO: dict[str, Entry] = {
    "bert": Entry(_bert, _text),
    "gpt2": Entry(_gpt2, _text),
    "llama": Entry(_llama, _text),
    "qwen2": Entry(_qwen2, _text),
    "t5": Entry(_t5, _text),
    "whisper": Entry(_whisper, _speech),
    "vit": Entry(_vit, lambda: _images(24)),
    "resnet": Entry(_resnet, lambda: _images(45)),
    "mixtral": Entry(_mixtral, _text),
}


def make(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, Inputs]:
    """The model in `dtype`, and its inputs: floating ones in `dtype`, integers as they are."""
    torch.manual_seed(7)
    model = ZOO[name].build().to(dtype).eval()
    return model, cast(ZOO[name].inputs(), dtype)


def reference(model: torch.nn.Module) -> torch.nn.Module:
    """The same model in float64."""
    exact = copy.deepcopy(model).double()
    if hasattr(exact, "set_experts_implementation") and exact.config.model_type == "mixtral":
        exact.set_experts_implementation("eager")  # the grouped product knows no float64
    return exact


def cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Floating inputs in `dtype`, the others untouched."""
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}


def call(model: Any, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, logits) of one call."""
    output = model(**inputs)
    return output.loss, output.logits
