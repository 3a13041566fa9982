"""Models without an importer: opened as they are, with the methods of regard's own."""

import json

import pytest
import torch
import transformers
from fastapi.testclient import TestClient
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from torch.testing import assert_close
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.errors import FileError, InputError, RegardError
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.service import Service
from regard.trace.capture import read_image
from tests.trace.tiny_models import BART, IMAGE, TEXT

pytestmark = pytest.mark.long

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", *(f"w{i}" for i in range(5, 40))]
LANGUAGES = [*WORDS[:5], "__en__", "__de__", *WORDS[7:]]
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SENTENCE = "w7 w9 w11 w30"


def make_tokenizer(*, front=("<s>",), words=WORDS):
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join([*front, "$A", "</s>"]),
        special_tokens=[(w, words.index(w)) for w in (*front, "</s>")],
    )
    tokenizer.add_special_tokens([word for word in words if word[0] != "w"])
    named = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in named.items()}
    )


def save(folder, name, settings, tokenizer=None):
    """Write a tiny model with weights that are not too small to matter."""
    kind = getattr(transformers, name)
    config = kind.config_class(**{**SPECIAL, **settings})
    torch.manual_seed(0)
    module = kind(config).eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight += 0.3 * torch.randn_like(weight)
    module.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return module


def eager(folder, name):
    kind = getattr(transformers, name)
    return kind.from_pretrained(folder, attn_implementation="eager").eval()


def switch_off(attention, head, d_head):
    """Zero one head by hand, before the output projection of a module."""

    def hook(_, inputs):
        changed = inputs[0].clone()
        changed[..., head * d_head : (head + 1) * d_head] = 0
        return (changed, *inputs[1:])

    return attention.register_forward_pre_hook(hook)


def test_a_decoder_without_importer_traces_generates_and_is_edited(tmp_path):
    save(tmp_path, "GPTNeoXForCausalLM", TEXT, make_tokenizer())
    model, reference = regard.load(tmp_path), eager(tmp_path, "GPTNeoXForCausalLM")
    assert (model.family, model.task) == ("decoder", "language")
    trace = model.trace(SENTENCE)
    ids = torch.tensor([[1, 7, 9, 11, 30]])
    with torch.no_grad():
        expected = reference(ids, output_attentions=True)
    assert list(trace) == ["gpt_neox.layers.0.attention", "gpt_neox.layers.1.attention"]
    for path, weights in zip(trace, expected.attentions, strict=True):
        assert_close(trace[path].weights(), weights[0], atol=1e-5, rtol=0)
    assert_close(trace.value("output.logits"), expected.logits, atol=1e-5, rtol=0)
    text = model.generate(SENTENCE, max_tokens=8, temperature=0.0).text
    written = reference.generate(ids, max_new_tokens=8, do_sample=False)[0].tolist()
    assert text == model.tokenizer.decode(written)
    handle = switch_off(reference.gpt_neox.layers[0].attention.dense, 1, 4)
    with torch.no_grad():
        by_hand = reference(ids).logits
    handle.remove()
    edited = model.trace(SENTENCE, edits=[regard.ablate("gpt_neox.layers.0.attention", head=1)])
    assert_close(edited.value("output.logits"), by_hand, atol=1e-5, rtol=0)
    assert not torch.allclose(by_hand, expected.logits, atol=1e-2)


def test_a_masked_model_fills_gaps(tmp_path):
    module = save(tmp_path, "RobertaForMaskedLM", TEXT, make_tokenizer())
    model, reference = regard.load(tmp_path), eager(tmp_path, "RobertaForMaskedLM")
    text = "w7 <mask> w11"
    with torch.no_grad():
        expected = reference(torch.tensor([[1, 7, 4, 11, 2]]), output_attentions=True)
    best = expected.logits[0, 2].softmax(-1).max(-1)
    ((found, *_),) = model.fill(text)
    assert found.text == model.tokenizer.decode([int(best.indices)])
    assert found.probability == pytest.approx(float(best.values), abs=1e-5)
    trace = model.trace(text)
    for path, weights in zip(trace, expected.attentions, strict=True):
        assert_close(trace[path].weights(), weights[0], atol=1e-5, rtol=0)
    with torch.no_grad():
        states = reference.roberta(torch.tensor([[1, 7, 2]])).last_hidden_state
    assert_close(torch.tensor(model.embed(["w7", "w7 w9"])[0]), states[0].mean(0))
    in_memory = regard.load(module, tokenizer=make_tokenizer())
    assert in_memory.fill(text)[0][0].text == found.text


def test_an_encoder_decoder_translates_like_transformers(tmp_path):
    save(tmp_path, "BartForConditionalGeneration", BART, make_tokenizer())
    model, reference = regard.load(tmp_path), eager(tmp_path, "BartForConditionalGeneration")
    source = torch.tensor([[1, 7, 9, 11, 30, 2]])
    suppressed = {"suppress_tokens": [0, 3, 4], "forced_eos_token_id": None, "min_new_tokens": 2}
    plain = {"do_sample": False, "num_beams": 1, "max_new_tokens": 9}
    written = reference.generate(source, **plain, **suppressed)[0].tolist()
    answer = model.translate(SENTENCE, beam=1, most=9)
    assert answer.parts[0].ids == [id for id in written[1:] if id != 2]
    trace = model.trace(SENTENCE, target="w8 w10")
    with torch.no_grad():
        target = torch.tensor([[2, 1, 8, 10]])
        expected = reference(source, decoder_input_ids=target, output_attentions=True)
    assert trace.tokens["target"] == ["</s>", "<s>", "w8", "w10"]
    cross = [path for path in trace if trace[path].kind == "cross"]
    assert cross == [f"model.decoder.layers.{i}.encoder_attn" for i in range(2)]
    for path, weights in zip(cross, expected.cross_attentions, strict=True):
        assert_close(trace[path].weights(), weights[0], atol=1e-5, rtol=0)
    edit = regard.ablate(cross[0], head=0)
    edited = model.translate(SENTENCE, beam=1, most=9, edits=[edit])
    handle = switch_off(reference.model.decoder.layers[0].encoder_attn.out_proj, 0, 4)
    by_hand = reference.generate(source, **plain, **suppressed)[0].tolist()
    handle.remove()
    assert edited.parts[0].ids == [id for id in by_hand[1:] if id != 2]
    assert model.translate([SENTENCE, "w8"])[0].text == model.translate(SENTENCE).text


def test_an_image_classifier_reads_files_with_its_processor(tmp_path):
    settings = {**IMAGE, "mlp_ratio": 2, "num_labels": 4}
    save(tmp_path, "Dinov2ForImageClassification", settings)
    sizes = {"size": {"height": 16, "width": 16}, "do_center_crop": False}
    processor = transformers.ViTImageProcessor(**sizes)
    processor.save_pretrained(tmp_path)
    file = tmp_path / "red.png"
    Image.new("RGB", (20, 20), "red").save(file)
    model, reference = regard.load(tmp_path), eager(tmp_path, "Dinov2ForImageClassification")
    pixels = processor(images=Image.open(file), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = reference(pixels, output_attentions=True)
    best = expected.logits[0].softmax(-1).max(-1)
    found = model.classify(file)[0]
    assert found.text == f"LABEL_{int(best.indices)}"
    assert found.probability == pytest.approx(float(best.values), abs=1e-5)
    trace = model.trace(file)
    assert trace.tokens["source"] == ["[class]", "0,0", "0,1", "1,0", "1,1"]
    for path, weights in zip(trace, expected.attentions, strict=True):
        assert_close(trace[path].weights(), weights[0], atol=1e-5, rtol=0)
    trace.html(tmp_path / "trace.html")
    assert (tmp_path / "trace.html").stat().st_size > 10_000
    check_images_in_memory(model, tmp_path)
    model.module.processor = transformers.ViTImageProcessor(**sizes | {"do_center_crop": True})
    with pytest.raises(InputError, match=r"prepared by ViTImageProcessor\w*: `crop_size` must"):
        model.classify(file)


def check_images_in_memory(model, folder):
    """They are read like their files: rotated, and not cut off at 255."""
    gradient, turned, file = Image.linear_gradient("L"), Image.Exif(), folder / "turned.jpg"
    turned[0x0112] = 6
    gradient.save(file, exif=turned)
    with Image.open(file) as opened:
        assert torch.equal(read_image(model, opened), read_image(model, file))
    with pytest.raises(InputError, match="which Pillow would cut off at 255"):
        read_image(model, gradient.convert("I;16"))
    file.write_bytes(file.read_bytes()[:-200])
    damaged = pytest.raises(FileError, match=r"turned.jpg is not an image .*: image file is trunc")
    with Image.open(file) as opened, damaged:
        read_image(model, opened)


@pytest.mark.parametrize(
    ("kind", "more"), [("OPTForCausalLM", {"word_embed_proj_dim": 16}), ("RobertaForMaskedLM", {})]
)
def test_texts_longer_than_the_positions_are_refused(tmp_path, kind, more):
    limit = {"max_position_embeddings": 12, "pad_token_id": 1}
    save(tmp_path, kind, TEXT | more | limit)
    model = regard.load(tmp_path)
    most = model.config.max_positions
    assert most == (10 if "Roberta" in kind else 12)
    assert len(model.trace([5] * most))
    for run in (model.trace, lambda ids: model.module(torch.tensor([ids]))):
        with pytest.raises(InputError, match=f"has 40 tokens, but .* learned only {most} posit"):
            run([5] * 40)


def test_a_text_classifier_classifies(tmp_path):
    settings = {**TEXT, "num_labels": 3, "id2label": {0: "bad", 1: "fair", 2: "good"}}
    save(tmp_path, "RobertaForSequenceClassification", settings, make_tokenizer())
    model, reference = regard.load(tmp_path), eager(tmp_path, "RobertaForSequenceClassification")
    with torch.no_grad():
        expected = reference(torch.tensor([[1, 7, 9, 2]])).logits[0].softmax(-1)
    found = {one.text: one.probability for one in model.classify("w7 w9")}
    assert [found[name] for name in ("bad", "fair", "good")] == pytest.approx(
        expected.tolist(), abs=1e-5
    )
    assert model.trace("w7 w9").output.candidates[0].name in found
    with pytest.raises(InputError, match="classifies texts, and a Image was given"):
        model.classify(Image.new("RGB", (4, 4)))
    with pytest.raises(InputError, match="reads text, and a Image was given"):
        model.trace(Image.new("RGB", (4, 4)))


def test_the_page_opens_a_folder_as_it_is(tmp_path):
    save(tmp_path, "BartForConditionalGeneration", BART, make_tokenizer())
    service = Service(Catalog([tmp_path]))
    client = TestClient(make_app(service, version="1"), base_url="http://127.0.0.1")
    name = service.catalog.entries[tmp_path.name].name
    site = "model.decoder.layers.0.encoder_attn"
    edits = [regard.ablate(site, head=0).to_dict()]
    try:
        asked = {"model": name, "text": SENTENCE, "edits": edits}
        response = client.post("/api/trace", json=asked)
        assert response.status_code == 200, response.text
        found = response.json()
        (cross,) = [one for one in found["sites"] if one["path"] == site]
        assert (cross["asks"], cross["answers"]) == ("target", "source")
        assert client.get(f"/api/trace/{found['id']}/flow").json()["sides"][0]["name"] == "encoder"
        lens = client.get(f"/api/trace/{found['id']}/lens").json()
        assert lens["stations"][0] == "decoder.embedding.output"
        split = client.get(f"/api/trace/{found['id']}/attribution").json()
        total = sum(part["value"] for part in split["parts"])
        assert total + split["bias"] == pytest.approx(split["logit"], abs=1e-4)
    finally:
        service.close()


def test_a_model_of_many_languages_is_told_which(tmp_path):
    tokenizer = make_tokenizer(front=("__en__",), words=LANGUAGES)
    save(tmp_path, "M2M100ForConditionalGeneration", BART, tokenizer)
    model, reference = regard.load(tmp_path), eager(tmp_path, "M2M100ForConditionalGeneration")
    with pytest.raises(InputError, match=r"between 2 languages \(en, de"):
        model.translate(SENTENCE)
    with pytest.raises(RegardError, match="no language 'fr'"):
        model.translate(SENTENCE, source_language="en", target_language="fr")
    spoken = {"source_language": "de", "target_language": "en"}
    answer = model.translate(SENTENCE, beam=1, most=9, **spoken)
    limits = {"do_sample": False, "num_beams": 1, "max_new_tokens": 9, "min_new_tokens": 2}
    forced = {"forced_bos_token_id": 5, "suppress_tokens": [0, 3, 4], "forced_eos_token_id": None}
    source = torch.tensor([[6, 7, 9, 11, 30, 2]])
    written = reference.generate(source, **limits, **forced)[0].tolist()
    assert answer.parts[0].ids == [id for id in written[1:] if id != 2]
    trace = model.between("de", "en").trace(SENTENCE, target="w8")
    assert trace.tokens["source"][0] == "__de__"
    assert trace.tokens["target"] == ["</s>", "__en__", "w8"]
    with pytest.raises(InputError, match=r"between 2 languages \(en, de"):
        model.trace(SENTENCE, target="w8")
    lines = tmp_path / "lines.txt"
    lines.write_text(f"{SENTENCE}\n")
    named = ["--source-language", "de", "--target-language", "en", "--beam", "1"]
    result = CliRunner().invoke(app, ["translate", str(tmp_path), str(lines), *named])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == model.translate(SENTENCE, beam=1, **spoken).text.strip()
    drawn = [str(tmp_path), SENTENCE, "--target", "w8", "--json", *named[:4]]
    shown = CliRunner().invoke(app, ["show", *drawn])
    assert "__de__" in json.loads(shown.stdout)["keys"] + json.loads(shown.stdout)["queries"]
    output = tmp_path / "bars.svg"
    made = ["figure", "bars", str(tmp_path), SENTENCE, "--target", "w8", *named[:4], "-o", output]
    assert CliRunner().invoke(app, list(map(str, made))).exit_code == 0
    assert CliRunner().invoke(app, ["show", "dates", "1 May", *named[:4]]).exception


class Handwritten(nn.Module):
    """A causal model as in a course: one layer, logits for each token."""

    def __init__(self):
        super().__init__()
        self.tokens, self.project = nn.Embedding(40, 8), nn.Linear(8, 40)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids):
        x = self.tokens(ids)
        mask = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        return self.project(x + self.attention(x, x, x, attn_mask=mask)[0])


def test_a_handwritten_module_is_a_model():
    torch.manual_seed(0)
    module = Handwritten().eval()
    model = regard.load(module, tokenizer=make_tokenizer())
    assert (model.family, model.task) == ("decoder", "language")
    ids = [1, 7, 9]
    for _ in range(4):
        ids.append(int(module(torch.tensor([ids]))[0, -1].argmax()))
    generated = model.generate("w7 w9", max_tokens=4, temperature=0.0).text
    assert generated.startswith(model.tokenizer.decode(ids[: ids.index(2) if 2 in ids else None]))
    assert list(model.trace("w7 w9")) == ["attention"]


class OneOutput(Handwritten):
    """The same with one number for the whole text, such as a rating."""

    def forward(self, ids):
        return super().forward(ids).mean(1)[:, :1]


def test_one_output_is_not_called_a_class():
    with pytest.raises(InputError, match="OneOutput is for regression with 1 labels"):
        regard.load(OneOutput())


def test_what_does_not_fit_is_refused_in_one_sentence(tmp_path):
    module = save(tmp_path, "RobertaForMaskedLM", TEXT, make_tokenizer())
    files = sorted(tmp_path.iterdir())
    model = regard.load(module, tokenizer=make_tokenizer())
    for given in (Image.new("RGB", (8, 8)), torch.zeros(3, 8, 8)):
        with pytest.raises(InputError, match="this model reads text, and a"):
            model.trace(given)
    with pytest.raises(InputError, match="40 is not an id of this vocabulary; ids are 0 to 39"):
        model.trace([1, 40])
    larger = make_tokenizer(words=[*WORDS, "w40"])
    with pytest.raises(InputError, match="41 tokens, but the model was made for 40"):
        regard.load(module, tokenizer=larger)
    with pytest.raises(InputError, match="computes no attention that regard can see"):
        regard.load(nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 40)))
    with pytest.raises(InputError, match="a int is not a model"):
        regard.load(3)
    with pytest.raises(InputError, match="cannot be saved by regard"):
        regard.load(module).save(tmp_path / "copy")
    assert sorted(tmp_path.iterdir()) == files
    settings = json.loads((tmp_path / "config.json").read_text())
    for change, sentence in [
        ({"num_hidden_layers": 1}, "do not match its config.json: they have .*layer.1.*too much"),
        ({"num_hidden_layers": 3}, "do not match its config.json: they have no fitting .*layer.2"),
        ({"intermediate_size": 40}, "do not match its config.json: they have no fitting .*dense"),
        ({"architectures": ["RobertaForMagic"]}, "RobertaForMagic, which the installed"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(RegardError, match=sentence):
            regard.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(FileError, match="a pickle"):
        regard.load(tmp_path)
