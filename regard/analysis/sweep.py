"""A sweep: every head is switched off in turn, and the probability of the answer is measured.

The heads of a site are the rows of one batch: row h runs with head h switched off. A decoder's
sites share one pass of the encoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.analysis.readout import Readout
from regard.errors import InputError, check_choice
from regard.generation.tracing import trace_answer
from regard.model import Model
from regard.tap import listen
from regard.trace import outputs
from regard.trace.capture import read_image, read_prompt, read_target, read_tokens, trace_model
from regard.trace.edit import Edit, Editor
from regard.trace.edits import Ablate, SetValue
from regard.trace.trace import Trace

_TOKENS_AT_ONCE = 4096
Progress = Callable[[int, int], None]
"""Called with the heads measured so far and their total; an exception it raises ends the sweep."""


@dataclass(frozen=True, repr=False)
class HeadSweep:
    """The change of the answer's log-probability when one head is switched off, for every head."""

    ids: tuple[int, ...]
    """The answer: the tokens of a translation, the next token, the tokens of gaps, or the class."""
    tokens: tuple[str, ...]
    positions: tuple[int | None, ...]
    """Where each of them is predicted; None for a class."""
    log_probs: tuple[float, ...]
    """The log-probability of each with all heads on."""
    changes: dict[str, Float[Tensor, "head token"]]
    """By site: what is added to `log_probs` when a head is switched off, mostly negative."""

    def total(self, path: str) -> Float[Tensor, " head"]:
        """Return the change of the whole answer's log-probability for each head of a site."""
        return self.changes[path].sum(-1)

    def ranked(self) -> list[tuple[str, int, float]]:
        """Return site, head and change of the whole answer, the most harmful loss first."""
        found = [
            (path, head, change)
            for path in self.changes
            for head, change in enumerate(self.total(path).tolist())
        ]
        return sorted(found, key=lambda one: one[2])

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as JSON values."""
        return {
            "ids": list(self.ids),
            "tokens": list(self.tokens),
            "positions": list(self.positions),
            "log_probabilities": list(self.log_probs),
            "changes": {path: table.tolist() for path, table in self.changes.items()},
        }

    def __repr__(self) -> str:
        ranked = self.ranked()
        lines = [f"  {change:+9.4f}  {path} head {head}" for path, head, change in ranked[:10]]
        title = f"<HeadSweep of {len(ranked)} heads, log-probability {sum(self.log_probs):.4f}:"
        return "\n".join([title, *lines]) + ">"


@torch.no_grad()
def sweep_heads(
    model: Model,
    given: Any,
    target: Any = None,
    *,
    to: str = "zero",
    edits: Sequence[Edit] = (),
    progress: Progress | None = None,
) -> HeadSweep:
    """Switch every head off in turn and measure the log-probability of the answer.

    Args:
        given: a text or token ids; an image for vision models.
        target: the answer of a translator; by default what it writes, for the first part of a text
            that is translated in several.
        to: what replaces the output of a head, "zero" or "mean" (over the queries).
        edits: other changes, which hold in all runs.
        progress: called with the heads measured so far and their total; raise in it to cancel.
    """
    check_choice("to", to, ("zero", "mean"))
    if model.family in ("transformer", "seq2seq") and target is None:
        answered = trace_answer(model, given, edits=edits).output
        target = list(answered.ids)
        given = answered.part_source if isinstance(given, str) else given
    trace = trace_model(model, given, target, edits=edits)
    answer, inputs = _answer(trace, model), _Inputs(model, given, target, edits)
    inputs.classes = None in answer.positions
    before = answer.log_probs(trace)
    total = sum(site.n_heads for site in trace.sites.values())
    done, changes = 0, {}
    for path, site in trace.sites.items():
        found = []
        for heads in torch.arange(site.n_heads).split(max(1, _TOKENS_AT_ONCE // inputs.n_tokens)):
            edit = _switch_off(path, site.n_heads, heads, to)
            found.append(answer.read(inputs.logits(path, len(heads), edit)))
            done += len(heads)
            if progress is not None:
                progress(done, total)
        changes[path] = (torch.cat(found) - before).cpu()
    return HeadSweep(answer.ids, answer.tokens, answer.positions, tuple(before.tolist()), changes)


def _switch_off(path: str, n_heads: int, heads: Tensor, to: str) -> Edit:
    """Return an edit that switches off another head in each row of a batch."""
    if n_heads == 1:  # such as that of a recurrent model, without an axis of heads
        return Ablate(path, to=to)

    def replace(context: Float[Tensor, "row head query d_v"]) -> Tensor:
        changed, rows = context.clone(), torch.arange(len(heads), device=context.device)
        off = heads.to(context.device)
        mean = context[rows, off].mean(-2, keepdim=True)
        changed[rows, off] = mean if to == "mean" else torch.zeros_like(mean)
        return changed

    return SetValue(f"{path}.context", replace)


@dataclass(frozen=True)
class _Answer:
    """The answer of a model: ids, and the positions of their logits."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    positions: tuple[int | None, ...]

    @property
    def value(self) -> str:
        return "output.classes" if None in self.positions else "output.logits"

    def log_probs(self, trace: Trace) -> Float[Tensor, " token"]:
        return self.read(trace.value(self.value))[0]

    def read(self, logits: Tensor) -> Float[Tensor, "row token"]:
        """Return the log-probability of each id, from logits of positions or of classes."""
        table = logits[:, None] if logits.dim() == 2 else logits
        rows = [position or 0 for position in self.positions]
        ids = torch.tensor(self.ids, device=logits.device)
        chosen = table[:, rows].double().log_softmax(-1)
        return chosen.gather(-1, ids.expand(len(chosen), -1)[..., None])[..., 0]


def _answer(trace: Trace, model: Model) -> _Answer:
    output = trace.output
    if isinstance(output, outputs.TranslationOutput):
        return _Answer(output.ids, tuple(trace.tokens["output"]), tuple(range(len(output.ids))))
    found: list[tuple[int, int | None]] = []
    if isinstance(output, outputs.NextTokenOutput):
        found = [(output.candidates[0].id, len(trace.tokens["target"]) - 1)]
    elif isinstance(output, outputs.FillOutput):
        found = [(gap.candidates[0].id, gap.position) for gap in output.gaps]
    elif isinstance(output, outputs.ClassificationOutput):
        found = [(output.candidates[0].id, None)]
    if not found:
        raise InputError(
            "the model predicts nothing for this input, so there is no answer to measure: give a "
            "text with [MASK]."
        )
    ids, positions = zip(*found, strict=True)
    readout = Readout(model, "encoder", "classes" if None in positions else "tokens")
    return _Answer(ids, tuple(map(readout.name, ids)), positions)


class _Inputs:
    """An input that a model can run on any number of times at once."""

    classes = False
    """True if an encoder classifies instead of filling gaps."""

    def __init__(self, model: Model, given: Any, target: Any, edits: Sequence[Edit]) -> None:
        self.model, self.edits = model, edits
        if model.family in ("transformer", "seq2seq"):
            source = read_tokens(model.tokenizer, given)
            read = read_target(model.target_tokenizer, target)
            self.tensors = [source.batch(model), read.batch(model)]
        elif model.family == "vision":
            self.tensors = [read_image(model, given).to(model.device)]
        else:
            decoder = model.family == "decoder"
            read = read_prompt(model, given) if decoder else read_tokens(model.tokenizer, given)
            self.tensors = [read.batch(model)]
        self.memory: Tensor | None = None
        if model.family == "transformer":
            with listen(Editor(edits)):
                self.memory = model.module.encode(self.tensors[0])

    @property
    def n_tokens(self) -> int:
        """The number of tokens of one row."""
        if self.model.family == "vision":
            config = self.model.config
            return (config.image_size // config.patch_size) ** 2
        return sum(ids.size(1) for ids in self.tensors)

    def logits(self, path: str, n_rows: int, edit: Edit) -> Tensor:
        """Run `n_rows` copies under an edit of the site `path`."""
        module, tensors = self.model.module, self.tensors
        rows = [x.expand(n_rows, *x.shape[1:]) for x in tensors]
        with listen(Editor([*self.edits, edit])):
            if self.memory is not None and path.startswith("decoder."):
                memory = self.memory.expand(n_rows, -1, -1)
                return module.project(module.decode(rows[1][:, :-1], memory))
            result = module(*rows)
            if self.model.family != "encoder":
                return result
            return module.classify(result) if self.classes else module.fill_logits(result)
