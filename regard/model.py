"""What `regard.load` gives: a model that can be run, looked into and saved."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.bundle.bundle import Bundle
from regard.bundle.card import Card
from regard.bundle.folder import read_description
from regard.bundle.pixels import Picture
from regard.engine.answers import Candidate, classify, fill, generate
from regard.engine.opening import choose_engine, lengths_of, open_translator, room_of
from regard.engine.plain import PlainEngine
from regard.engine.search import SearchOptions
from regard.engine.translator import SLOW_WINDOW, LineTranslator, Translation
from regard.engine.writing import Generation
from regard.errors import InputError
from regard.interop.named import find_model
from regard.text.tokenizer import Tokenizer
from regard.trace.edit import Edit
from regard.trace.run import trace_bundle
from regard.trace.trace import Trace


class Model:
    """A model with its tokenizer and card, of any family."""

    def __init__(self, bundle: Bundle, folder: Path | None = None) -> None:
        self.bundle = bundle
        self.folder = folder
        self._translators: dict[tuple[Any, ...], LineTranslator] = {}
        self._loaded = self._state()

    @property
    def model(self) -> Any:
        """The network itself, a torch module."""
        return self.bundle.model

    @property
    def config(self) -> Any:
        """What the network is made of."""
        return self.bundle.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """How text becomes ids."""
        return self.bundle.tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer | None:
        """How the target does; the same one where it has none of its own."""
        return self.bundle.target_tokenizer

    @property
    def card(self) -> Card:
        """Where the model comes from, and what it is worth."""
        return self.bundle.card

    def trace(self, given: Any, target: Any = None, *, edits: Sequence[Edit] = ()) -> Trace:
        """Everything the model computes on a text, ids or an image, changed by `edits`.

        Models with a target run on the one that is given, or on what they write themselves.
        """
        return trace_bundle(self.bundle, given, target, edits=edits)

    def translate(
        self,
        texts: Sequence[str],
        *,
        engine: str = "auto",
        int8: bool = False,
        trace: bool = False,
        **options: Any,
    ) -> list[Translation]:
        """The translation of each text; `options` are those of SearchOptions (beam, n_best, …).

        The engine "auto" is the fastest that can run the model: CTranslate2 for Transformers,
        PyTorch for all others. With `trace`, each translation has a trace of everything this model
        computes when it writes exactly that, whichever engine has found it. With `beam_tree`,
        PyTorch searches, and each translation has a `beam_tree` of all that was looked at. All
        translations begin with `prefix`, and the words of `must` appear in each.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts: put the one text into [ ].")
        asked = SearchOptions(**options)
        translator = self._translator(engine, int8, asked.only_torch)
        found = list(translator.translate(texts, asked))
        return [self._traced(one) for one in found] if trace else found

    def _traced(self, translation: Translation) -> Translation:
        """The same with a trace of each part: what was written is read once, as in training."""
        target = self.target_tokenizer
        assert target is not None, "it has just translated"
        traces = [
            self.trace(part.source_ids, [target.start_id, *part.ids, target.end_id])
            for part in translation.parts
            if not part.copied
        ]
        return replace(translation, traces=tuple(traces))

    def generate(self, prompt: str, **options: Any) -> Generation:
        """The text that a decoder-only model writes after a prompt; see SampleOptions."""
        return generate(self.bundle, prompt, **options)

    def fill(self, text: str, *, count: int = 5) -> list[list[Candidate]]:
        """For each [MASK] of a text what an encoder-only model would put there."""
        return fill(self.bundle, text, count=count)

    def classify(self, images: Sequence[Picture], *, count: int = 5) -> list[list[Candidate]]:
        """For each image (or text) its most probable classes."""
        return classify(self.bundle, images, count=count)

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write the model folder; with dtype "float16" its weights take half the room."""
        self.bundle.save(folder, dtype=dtype)

    def _translator(self, engine: str, int8: bool, only_torch: str) -> LineTranslator:
        """The engine asked for, opened once; a model without a folder has only PyTorch's.

        So has one whose weights are no longer those of its folder.
        """
        state = self._state()
        if self.folder is not None:
            described = read_description(self.folder)
            if state != self._loaded:
                only_torch = only_torch or "weights that were changed after loading"
            engine = choose_engine(described, engine, int8=int8, only_torch=only_torch)
        chosen = engine, int8, state if int8 else None
        if chosen not in self._translators:
            if self.folder is None or engine == "torch":
                self._translators[chosen] = self._plain_translator(int8=int8)
            else:
                self._translators[chosen] = open_translator(self.folder, engine=engine, int8=int8)
        return self._translators[chosen]

    def _state(self) -> tuple[tuple[int, int], ...]:
        """What changes when somebody writes into the weights, or puts others in their place."""
        counted = (0 if one.is_inference() else one._version for one in self.model.parameters())
        return tuple(zip((one.data_ptr() for one in self.model.parameters()), counted, strict=True))

    def _plain_translator(self, *, int8: bool) -> LineTranslator:
        tokenizer, target = self.tokenizer, self.target_tokenizer
        if self.bundle.task != "translation" or tokenizer is None or target is None:
            raise InputError(f"this is a model for {self.bundle.task}; it cannot translate.")
        return LineTranslator(
            PlainEngine([self.model.eval()], target, int8=int8),
            tokenizer,
            target,
            **lengths_of(self.bundle.extras),
            room=room_of(self.config.to_dict()),
            window=SLOW_WINDOW,
        )

    def __repr__(self) -> str:
        return repr(self.model)


def load(name_or_folder: str | Path) -> Model:
    """The bundled model of this name, or the one in this folder."""
    folder = find_model(name_or_folder)
    return Model(Bundle.load(folder), folder)
