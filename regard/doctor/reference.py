"""Compare a model of the library transformers, as regard opens it, with its eager original."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.doctor.proofs import BOUND, Proof, sample_inputs
from regard.errors import InputError
from regard.interop.adapters import Adapter
from regard.interop.model_names import find_model
from regard.interop.transformers_folder import load_module
from regard.model import Model
from regard.model_folder import is_transformers_folder
from regard.trace.trace import Trace
from regard.trace.watch import watch

_LENGTH = 9  # the target has one token more, which tells attention to the source from the others
_CLAIMS = {
    "hidden states": "the residual stream before and after every layer is that of transformers",
    "attention": "the weights of every head are those of transformers",
    "logits": "the logits, or the vectors of a model without a head, are those of transformers",
}


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
    return _prove("hidden states", pairs, trace.stream_problem.rstrip(".") or reason)


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
    return _prove("attention", pairs, reason)


def _prove_output(output: Tensor | None, theirs: Any) -> Proof:
    names = ("logits", "prediction_logits", "last_hidden_state")
    expected = next(one for name in names if (one := getattr(theirs, name, None)) is not None)
    if output is None:
        return _prove("logits", [], "regard averages over the image, transformers does not")
    return _prove("logits", [ComparedValue("output", (output,), expected)])


def _read(output: Any, name: str) -> list[Tensor]:
    """Return the tensors that transformers has returned under a name."""
    return [one for one in getattr(output, name, None) or () if one is not None]


def _prove(name: str, pairs: Sequence[ComparedValue], reason: str = "") -> Proof:
    """Return the largest difference, with the place of the first that is too large."""
    if reason:
        return Proof(name, _CLAIMS[name], reason)
    differences = {pair.path: pair.difference for pair in pairs}
    largest = max(differences.values(), key=lambda x: (x != x, x))  # NaN is the worst
    first = next((path for path, x in differences.items() if not x <= BOUND), None)
    measured = f"{len(pairs)} values"
    if first is not None:
        measured += f", the first that differs is {first}"
    return Proof(name, _CLAIMS[name], measured, largest, BOUND)
