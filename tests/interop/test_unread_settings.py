"""Every setting of a checkpoint is honored, changes no result, or is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from regard.errors import InputError, RegardError
from regard.interop.families import HARMLESS
from regard.interop.import_checkpoint import import_checkpoint
from tests.interop.changes import change_config

IDS = torch.tensor([[5, 3, 9, 2, 7, 4, 11, 6]])
TARGET = torch.tensor([[1, 8, 6, 3]])
TEXT = {"vocab_size": 40, "max_position_embeddings": 16}
BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
SIDES = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in
         (("layers", 1), ("attention_heads", 4), ("ffn_dim", 24))}  # fmt: skip
ENDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
GPT2 = {"n_embd": 16, "n_layer": 1, "n_head": 4, "n_positions": 16, "vocab_size": 40}
CHECKPOINTS = {
    "BertForMaskedLM": TEXT | BERT,
    "DistilBertForMaskedLM": TEXT | {"dim": 16, "n_layers": 1, "n_heads": 4, "hidden_dim": 24},
    "GPT2LMHeadModel": GPT2 | {"bos_token_id": 0, "eos_token_id": 0},
    "LlamaForCausalLM": TEXT | BERT,
    "MistralForCausalLM": TEXT | BERT | {"sliding_window": None, "num_key_value_heads": 2},
    "Qwen2ForCausalLM": TEXT | BERT | {"num_key_value_heads": 2},
    "ViTForImageClassification": BERT | {"image_size": 12, "patch_size": 4},
    "DeiTForImageClassification": BERT | {"image_size": 12, "patch_size": 4},
    "MarianMTModel": TEXT | SIDES | ENDS | {"d_model": 16},
    "PegasusForConditionalGeneration": TEXT | SIDES | ENDS | {"d_model": 16},
}
# These say which weights the folder has, so that with another value it is not complete.
STATED = {"architectures", "model_type", "id2label", "label2id", "vocab_size"}
STATED |= {"share_encoder_decoder_embeddings", "summary_activation"}
NAMED = {"layer_types": ["sliding_attention"]}


def other(name, value):
    """Return another value of the same type, or None if there is no obvious one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 2 * value + 0.25
    if isinstance(value, str):
        return "relu" if "act" in name else None
    if isinstance(value, dict):
        return {inner: other(inner, one) or one for inner, one in value.items()}
    return 2 if value is None else NAMED.get(name)


@torch.no_grad()
def logits_of(kind, transformers, folder):
    theirs = getattr(transformers, kind).from_pretrained(folder).eval()
    ours = import_checkpoint(folder).module.eval()
    if "Image" in kind:
        pixels = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
        return ours(pixels), theirs(pixels).logits
    if kind in ("MarianMTModel", "PegasusForConditionalGeneration"):
        # ours reads all but the last token of the target
        return ours(IDS, torch.cat([TARGET, TARGET[:, :1]], 1)), theirs(
            input_ids=IDS, decoder_input_ids=TARGET
        ).logits
    found = ours(IDS)
    return (ours.fill_logits(found) if "Masked" in kind else found), theirs(IDS).logits


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_no_setting_is_ignored_silently(saved, transformers, kind):
    folder = saved(kind, settings=CHECKPOINTS[kind]).folder
    stated = json.loads((folder / "config.json").read_text())
    changed = {name: other(name, value) for name, value in stated.items() if name not in STATED}
    changed = {name: value for name, value in changed.items() if value is not None}
    if "Pegasus" in kind:
        del changed["max_position_embeddings"]  # the folder holds the sinusoids of these positions
    harmless = {name: value for name, value in changed.items() if name in HARMLESS}
    change_config(folder, **{k: v for k, v in harmless.items() if "token_id" not in k})
    assert_close(*logits_of(kind, transformers, folder), rtol=0, atol=1e-4)
    refused = []
    for name in set(changed) - set(harmless):
        change_config(folder, **stated | {name: changed[name]})
        try:
            import_checkpoint(folder)
        except RegardError:
            refused.append(name)
        else:
            assert_close(*logits_of(kind, transformers, folder), rtol=0, atol=1e-4, msg=name)
    assert refused
    for name in stated.keys() - STATED:  # then transformers takes the default of the family
        rest = {key: value for key, value in stated.items() if key != name}
        (folder / "config.json").write_text(json.dumps(rest))
        try:
            import_checkpoint(folder)
            both = logits_of(kind, transformers, folder)
        except (RegardError, RuntimeError, AssertionError):  # transformers' default does not fit
            continue
        assert_close(*both, rtol=0, atol=1e-4, msg=name)
    change_config(folder, **stated | {"quantum_flux": 3})
    with pytest.raises(InputError, match=r"has quantum_flux = 3, which regard's .* does not know"):
        import_checkpoint(folder)


def test_a_projection_that_differs_from_the_tied_embedding_is_used(saved, transformers):
    kind = "GPT2LMHeadModel"
    folder = saved(kind, settings=CHECKPOINTS[kind]).folder
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + torch.randn(40, 16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ours, theirs = logits_of(kind, transformers, folder)
    assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert import_checkpoint(folder).config.tie is False


@pytest.mark.parametrize(
    ("kind", "copy"),
    [
        ("BertForMaskedLM", "cls.predictions.decoder.weight"),
        ("DistilBertForMaskedLM", "vocab_projector.weight"),
        ("MarianMTModel", "lm_head.weight"),
    ],
)
def test_two_values_for_one_matrix_are_refused(saved, kind, copy):
    folder = saved(kind, settings=CHECKPOINTS[kind]).folder
    tensors = load_file(folder / "model.safetensors")
    tensors[copy] = torch.randn(40, 16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=rf"'{copy}' and .* different values"):
        import_checkpoint(folder)
