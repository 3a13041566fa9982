"""Compare a model with other ways to run it: its definition, engines, files, and transformers."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.doctor.proofs import (
    BOUND,
    Proof,
    largest_difference,
    make_batch,
    outputs,
    prove,
    sample_inputs,
)
from regard.errors import InputError, MissingExtraError
from regard.interop.adapters import Adapter
from regard.interop.export import export
from regard.interop.model_names import ZOO, find_model
from regard.interop.transformers_folder import load_module
from regard.model import Model, load
from regard.model_folder import EXAMPLES, is_transformers_folder
from regard.models.config import ModelConfig, build, config_from_dict
from regard.tap import Tapped, listen
from regard.trace.trace import Trace
from regard.trace.watch import watch

_LENGTH = 9  # the target has one token more, which tells attention to the source from the others


@dataclass(frozen=True, eq=False)
class ComparedValue:
    """A value under its path in the trace, and what transformers computes there.

    There are several values of regard where transformers may return one or the other.
    """

    path: str
    ours: tuple[Tensor, ...]
    theirs: Tensor

    @property
    def difference(self) -> float:
        """The largest difference, relative where values exceed 1; infinite for other shapes."""
        fitting = [one for one in self.ours if one.shape == self.theirs.shape]
        scale = self.theirs.abs().clamp(min=1)
        return min((float(((x - self.theirs) / scale).abs().max()) for x in fitting), default=inf)


def reference_folder(model: str | None) -> Path:
    """Return the folder of a model that transformers can open as well, or refuse it."""
    folder = None if model is None else find_model(model)
    if folder is None or not is_transformers_folder(folder):
        given = "no model was given" if folder is None else f"{model} is not a Hugging Face folder"
        raise InputError(
            f"{given}, and --reference compares with transformers: give a folder that "
            "transformers has saved."
        )
    return folder


@torch.no_grad()
def compare_with_reference(model: Model, folder: Path) -> list[Proof]:
    """Compare hidden states, attention and output of one random input.

    Args:
        model: the model as regard has opened it.
        folder: where transformers finds the same model.
    """
    inputs = _draw_inputs(model)
    theirs = load_module(folder, attention="eager")(
        **inputs, output_hidden_states=True, output_attentions=True
    )
    trace, output = _run(model, inputs)
    return [
        _prove_states(model, trace, theirs, _last_states(model, trace, inputs)),
        _prove_attention(trace, theirs),
        _prove_output(output, theirs),
    ]


def _draw_inputs(model: Model) -> dict[str, Tensor]:
    """Draw one input under the names that transformers has."""
    longest = getattr(model.config, "max_positions", None) or _LENGTH + 2
    one = sample_inputs(model, [max(1, min(_LENGTH, longest - 2))])[0]
    name = "pixel_values" if model.family == "vision" else "input_ids"
    inputs = {name: one.ids[None]}
    if model.family == "transformer" and one.target is not None:
        inputs["decoder_input_ids"] = one.target[None, :-1]
    return inputs


def _run(model: Model, inputs: dict[str, Tensor]) -> tuple[Trace, Tensor | None]:
    """Record what regard computes; the output is None if transformers has none like it."""
    module, given = model.module.eval(), next(iter(inputs.values()))
    with watch() as trace:
        if model.family == "transformer":
            target = inputs["decoder_input_ids"]  # the model leaves out the last token
            output = module(given, torch.cat([target, target[:, :1]], dim=1))
        elif model.family == "encoder":
            output = _encode(module, given)
        else:
            output = module(given)
    trace.stream_problem = getattr(module, "stream_problem", "")
    pools = model.family == "vision" and model.config.n_classes is None
    return trace, None if pools else output


def _encode(module: Any, ids: Tensor) -> Tensor:
    states = module(ids)
    if module.fill is not None:
        return module.fill_logits(states)
    if module.classifier is not None:
        return module.classify(states)
    return getattr(states, "hidden", states)


def _prove_states(model: Model, trace: Trace, theirs: Any, ends: dict[str, Tensor]) -> Proof:
    """Compare the stream; `ends` has the last state of each side after its final norm."""
    pairs, reason = [], ""
    for side, states in _states_by_side(model, theirs).items():
        paths = _layer_ends(trace, side)
        if len(paths) != len(states):
            reason = f"regard has {len(paths)} states of the {side}, transformers {len(states)}"
            continue
        for path, state in zip(paths, states, strict=True):
            # some models return the last state before the final norm, others after it
            also = (ends[side],) if path == paths[-1] else ()
            pairs.append(ComparedValue(path, (trace.values[path], *also), state))
    return _prove_pairs("hidden states", pairs, trace.stream_problem.rstrip(".") or reason)


def _states_by_side(model: Model, output: Any) -> dict[str, list[Tensor]]:
    if model.family == "transformer":
        return {side: _read(output, f"{side}_hidden_states") for side in ("encoder", "decoder")}
    return {"decoder" if model.family == "decoder" else "encoder": _read(output, "hidden_states")}


def _last_states(model: Model, trace: Trace, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the last state of each side after its final norm, as regard's copy computes it."""
    if isinstance(model.module, Adapter):
        output = model.module.inner(**inputs, output_hidden_states=True)
        return {side: x[-1] for side, x in _states_by_side(model, output).items() if x}
    paths = [f"{side}.output" for side in ("encoder", "decoder")]
    return {path.split(".")[0]: trace.values[path] for path in paths if path in trace.values}


def _layer_ends(trace: Trace, side: str) -> list[str]:
    """Return the path of the stream before the first layer and after each."""
    ends = {"": f"{side}.embedding.output"}
    for path in trace.values:
        parts = path.split(".")
        if parts[:2] == [side, "layers"] and parts[-1] == "residual":
            ends[parts[2]] = path
    return [path for path in ends.values() if path in trace.values]


def _prove_attention(trace: Trace, theirs: Any) -> Proof:
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    weights = [one for name in names for one in _read(theirs, name)]
    sites = sorted(trace.sites.values(), key=lambda site: site.kind == "cross")
    pairs = [
        ComparedValue(site.path, (site.all_batches("weights"),), one)
        for site, one in zip(sites, weights, strict=False)
    ]
    differ = len(sites) != len(weights)
    reason = f"regard has {len(sites)} sites, transformers returns {len(weights)}" if differ else ""
    return _prove_pairs("attention", pairs, reason)


def _prove_output(output: Tensor | None, theirs: Any) -> Proof:
    names = ("logits", "prediction_logits", "last_hidden_state")
    expected = next(one for name in names if (one := getattr(theirs, name, None)) is not None)
    if output is None:
        return _prove_pairs("logits", [], "regard averages over the image, transformers does not")
    return _prove_pairs("logits", [ComparedValue("output", (output,), expected)])


def _read(output: Any, name: str) -> list[Tensor]:
    """Return the tensors that transformers has returned under a name."""
    return [one for one in getattr(output, name, None) or () if one is not None]


def _prove_pairs(name: str, pairs: Sequence[ComparedValue], reason: str = "") -> Proof:
    """Return the largest difference, with the place of the first that is too large."""
    if reason:
        return prove(name, reason)
    differences = {pair.path: pair.difference for pair in pairs}
    largest = max(differences.values(), key=lambda x: (x != x, x))  # NaN is the worst
    first = next((path for path, x in differences.items() if not x <= BOUND), None)
    measured = f"{len(pairs)} values"
    if first is not None:
        measured += f", the first that differs is {first}"
    return prove(name, measured, largest, BOUND)


@torch.no_grad()
def prove_permutation(model: Model) -> Proof:
    """Permute the tokens of an encoder whose positions were taken away."""
    form = getattr(model.config, "attention", "exact")
    if model.family not in ("transformer", "encoder") or not isinstance(model.config, ModelConfig):
        return prove("permutation", "only encoders of regard can do without positions")
    if form not in ("exact", "efficient"):
        return prove("permutation", f"{form} attention depends on the order by its definition")
    settings = {**model.config.to_dict(), "positions": "none"}
    module: Any = build(config_from_dict(settings)).eval()
    weights = {n: x for n, x in model.module.state_dict().items() if n in module.state_dict()}
    module.load_state_dict(weights, strict=False)
    ids = sample_inputs(model, (9,), seed=5)[0].ids
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(6))

    def encode(given: Tensor) -> Tensor:
        found = module.encode(given[None]) if model.family == "transformer" else module(given[None])
        return getattr(found, "hidden", found)[0]

    difference = largest_difference([encode(ids)[order]], [encode(ids[order])])
    return prove("permutation", "states of the encoder", difference, BOUND)


@torch.no_grad()
def prove_fused(model: Model) -> Proof:
    """Compare the fused kernel with the steps of the definition, which a listener can ask for."""
    batch = make_batch(model, sample_inputs(model, seed=7))
    fused = outputs(model, batch)
    with listen(_AskForWeights()):
        explicit = outputs(model, batch)
    return prove("fused", "log-probabilities", largest_difference(fused, explicit), BOUND)


class _AskForWeights:
    """A listener that asks for the weights, so that they are computed step by step."""

    changes = False

    def wants(self, path: str) -> bool:
        return path.endswith(".weights")

    def see(self, tapped: Tapped) -> Any:
        return tapped.value


@torch.no_grad()
def prove_definition(model: Model) -> Proof:
    """Compare weights × values of every recorded site with what the model computed there."""
    batch = make_batch(model, sample_inputs(model, (7,) * 2, seed=11))
    with watch() as trace:
        outputs(model, batch)
    pairs = [
        ComparedValue(path, (site.all_batches("context"),), trace.values[f"{path}.context"])
        for path, site in trace.sites.items()
        if f"{path}.context" in trace.values
    ]
    return _prove_pairs("definition", pairs, "" if pairs else "the model has no attention sites")


@torch.no_grad()
def prove_saving(model: Model) -> Proof:
    """Save the model, load it again and compare the bits of its weights."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save(Path(folder) / "model")
        except InputError as error:
            return prove("saving", str(error).rstrip("."))
        states = [one.module.state_dict() for one in (model, load(Path(folder) / "model"))]
        pairs = [[state[name].float() for name in sorted(state)] for state in states]
        return prove("saving", "weights", largest_difference(*pairs))


_TEXTS = {
    "translation": ["The dog is sleeping.", "A man is reading a book.", "Where is the station?"],
    "language": ["Once upon a time", "The dog"],
}


def example_texts(model: Model) -> list[str]:
    """Return texts that a model can read: its own examples, else some of its task."""
    given: list[Any] = list(model.extras.get(EXAMPLES) or ())
    if model.folder is not None and model.folder.parent == ZOO:
        given = (
            json.loads((ZOO / "examples.json").read_text("utf-8")).get(model.folder.name) or given
        )
    texts = [one if isinstance(one, str) else one.get("text") for one in given]
    return [one for one in texts if one][:6] or _TEXTS.get(model.task, _TEXTS["translation"])


def _reads_text(model: Model) -> bool:
    return model.tokenizer is not None and model.family != "vision"


def prove_trace(model: Model) -> Proof:
    """Compare the text that a trace explains with the one that the model writes."""
    if model.task != "translation" or not _reads_text(model):
        return prove("trace", "only translators with a tokenizer write the text that is traced")
    texts = example_texts(model)
    differ = sum(model.trace(one).output.text != model.translate(one).text for one in texts)
    return prove("trace", f"{len(texts)} texts", float(differ))


def _answers(model: Model, texts: list[str], **options: Any) -> list[tuple[str, float]]:
    """Return the answers to texts and their scores."""
    if model.task == "translation":
        return [(one.text, one.score) for one in model.translate(texts, **options)]
    found = model.generate(texts, temperature=0.0, max_tokens=12, **options)
    return [(one.text, one.log_prob / 12) for one in found]


def _prove_engines(model: Model, name: str, bound: float, **fast: Any) -> Proof:
    """Compare answers of another engine with those of the torch engine in float32."""
    if model.task not in ("translation", "language") or not _reads_text(model):
        return prove(name, "only models that write texts and have a tokenizer have engines")
    texts, pairs = example_texts(model), []
    searches = [{"beam": 1}, {"beam": 4}] if model.task == "translation" else [{}]
    try:
        for search in searches:
            ours = _answers(model, texts, engine="torch", **search)
            pairs += zip(ours, _answers(model, texts, **fast, **search), strict=True)
    except InputError as error:
        return prove(name, str(error).rstrip("."))
    differ = sum(one[0] != other[0] for one, other in pairs)
    largest = max((abs(one[1] - other[1]) for one, other in pairs), default=0.0)
    return prove(
        name, f"scores of {len(pairs)} answers, {differ} of them other texts", largest, bound
    )


def prove_engines(model: Model) -> Proof:
    """Compare the fast engine with PyTorch, greedy and with a beam of 4."""
    return _prove_engines(model, "engines", 1e-3)


def prove_int8(model: Model) -> Proof:
    """Compare 8-bit weights with float32; the answers may differ, which is counted."""
    is_translator = model.task == "translation"
    return _prove_engines(
        model, "int8", 0.5, **({"int8": True} if is_translator else {"precision": "int8"})
    )


def prove_tokenizer(model: Model) -> Proof:
    """Encode texts, decode the tokens and encode them again."""
    if not _reads_text(model) or model.tokenizer is None:
        return prove("tokenizer", "the model has no tokenizer")
    found = [model.tokenizer.encode(text) for text in example_texts(model)]
    mask = model.tokenizer.mask_id  # a gap is not part of a decoded text
    found = [[id for id in ids if id != mask] for ids in found]
    known = [ids for ids in found if model.tokenizer.unknown_id not in ids]
    if not known:
        return prove("tokenizer", "the examples have letters that the tokenizer does not know")
    again = [model.tokenizer.encode(model.tokenizer.decode(ids)) for ids in known]
    differ = sum(one != other for one, other in zip(known, again, strict=True))
    return prove("tokenizer", f"{len(known)} texts", float(differ))


@torch.no_grad()
def prove_export(model: Model) -> Proof:
    """Export the model for transformers, import it and compare the results."""
    batch = make_batch(model, sample_inputs(model, seed=12))
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(model, Path(folder) / "model", to="huggingface")
            again = load(Path(folder) / "model")
        except (InputError, MissingExtraError) as error:
            return prove("export", str(error).rstrip("."))
        difference = largest_difference(outputs(model, batch), outputs(again, batch))
    return prove("export", "log-probabilities", difference, BOUND)


AGREEMENTS = (
    prove_permutation,
    prove_fused,
    prove_definition,
    prove_trace,
    prove_engines,
    prove_int8,
    prove_tokenizer,
    prove_saving,
    prove_export,
)
"""Proofs that other ways to run a model agree with it."""
