"""Tiny models of transformers with random weights: a configuration and an input for each.

`make models-matrix` and the tests build them from this table.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": 40,
    "max_position_embeddings": 32,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 40}
BART = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "vocab_size": 40,
    "max_position_embeddings": 32,
    "decoder_start_token_id": 2,
}
T5 = {
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "vocab_size": 40,
    "decoder_start_token_id": 0,
}
IMAGE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 8,
}
SWIN = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2], "num_heads": [2]}


@dataclass(frozen=True)
class Tiny:
    """One architecture."""

    model: str
    config: str
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: str = "text"

    def build(self, attention: str = "sdpa") -> torch.nn.Module:
        """Build the model, the same for every implementation of attention."""
        config = getattr(transformers, self.config)(**{**SPECIAL, **self.settings})
        config._attn_implementation = attention
        torch.manual_seed(0)
        return getattr(transformers, self.model)(config).eval()

    def example(self) -> dict[str, torch.Tensor]:
        """Return a batch of two; the second text is padded."""
        random = torch.Generator().manual_seed(1)
        if self.inputs == "image":
            return {"pixel_values": torch.randn(2, 3, 16, 16, generator=random)}
        ids = torch.randint(3, 40, (2, 7), generator=random)
        mask = torch.ones_like(ids)
        mask[1, 5:] = 0
        given = {"input_ids": ids, "attention_mask": mask}
        if self.inputs == "pair":
            given["decoder_input_ids"] = torch.randint(3, 40, (2, 7), generator=random)
        return given


def _decoder(name: str, **more: Any) -> Tiny:
    return Tiny(f"{name}ForCausalLM", f"{name}Config", {**TEXT, **more})


TINY = {
    "gpt2": Tiny("GPT2LMHeadModel", "GPT2Config", GPT2),
    "llama": _decoder("Llama", num_key_value_heads=2),
    "qwen3": _decoder("Qwen3", num_key_value_heads=2, head_dim=8),
    "gemma3": Tiny(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**TEXT, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4},
    ),
    "phi": _decoder("Phi"),
    "olmo2": _decoder("Olmo2"),
    "gpt_neox": _decoder("GPTNeoX"),
    "roberta": Tiny("RobertaForMaskedLM", "RobertaConfig", TEXT),
    "modernbert": Tiny("ModernBertForMaskedLM", "ModernBertConfig", TEXT),
    "electra": Tiny("ElectraForMaskedLM", "ElectraConfig", {**TEXT, "embedding_size": 16}),
    "bart": Tiny("BartForConditionalGeneration", "BartConfig", BART, "pair"),
    "m2m100": Tiny("M2M100ForConditionalGeneration", "M2M100Config", BART, "pair"),
    "mbart": Tiny("MBartForConditionalGeneration", "MBartConfig", BART, "pair"),
    "t5": Tiny("T5ForConditionalGeneration", "T5Config", T5, "pair"),
    "dinov2": Tiny("Dinov2Model", "Dinov2Config", {**IMAGE, "mlp_ratio": 2}, "image"),
    "clip_vision": Tiny("CLIPVisionModel", "CLIPVisionConfig", IMAGE, "image"),
    "beit": Tiny("BeitModel", "BeitConfig", {**IMAGE, "use_relative_position_bias": True}, "image"),
    "swin": Tiny("SwinModel", "SwinConfig", {**SWIN, "window_size": 4}, "image"),
}
