"""The class that `regard.load` returns, and its folder on disk."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch

from regard.capabilities import choose_engine
from regard.data.image_files import Picture
from regard.data.images import Normalization, parse_normalization
from regard.errors import FileError, InputError, RegardError, UnknownNameError, nearest
from regard.files import atomic_folder, existing_folder, write_atomic
from regard.model_folder import (
    CARD,
    CONFIG,
    MODEL_FILES,
    TARGET_TOKENIZER,
    TASKS,
    TOKENIZER,
    WEIGHTS,
    Card,
    Description,
    read_card,
    read_description,
    read_tokenizers,
    weights_file,
    write_tokenizer,
)
from regard.models.config import ModelConfig, config_from_dict
from regard.models.weights import build_from_weights, read_weights, write_weights
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.generation.predictions import Candidate
    from regard.generation.search import Engine, SearchKeywords, SearchOptions
    from regard.generation.text_generation import Generation
    from regard.generation.translator import Translation, Translator
    from regard.trace.edits import Edit
    from regard.trace.trace import Trace


@dataclass(eq=False, kw_only=True, repr=False)
class Model:
    """A network of any family with its tokenizers, configuration and card.

    Methods import what they need when they are called, so that loading a model is fast.
    """

    module: Any  # a torch module of one of the families in regard.models
    task: str
    tokenizer: Tokenizer | None = None  # of the source; None for models that read images
    target_tokenizer: Tokenizer | None = None  # the same as `tokenizer` by default
    labels: tuple[str, ...] | None = None
    pixels: Normalization | None = None  # mean and deviation that images are normalized with
    card: Card = field(default_factory=Card)
    extras: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None  # the model was loaded from it

    def __post_init__(self) -> None:
        if self.target_tokenizer is None:
            self.target_tokenizer = self.tokenizer
        if self.task not in TASKS:
            raise UnknownNameError(f"there is no task {self.task!r}; {nearest(self.task, TASKS)}.")
        _check_vocabularies(self)
        n_classes = getattr(self.config, "n_classes", None)
        if self.labels is not None and len(self.labels) != n_classes:
            raise InputError(
                f"there are {len(self.labels)} labels for a model of {n_classes} classes: give one "
                "label for each class."
            )
        self._translators: dict[tuple[Any, ...], Translator] = {}
        self._loaded_weights = self._weights_state()

    @property
    def config(self) -> Any:
        """The configuration of the network."""
        return self.module.config

    @property
    def family(self) -> str:
        """One of transformer, seq2seq, encoder, decoder and vision."""
        return self.config.family

    @property
    def size(self) -> str:
        """The number of parameters and of bytes, as text."""
        return self._size(None)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.module.parameters()).device

    def to(self, device_or_dtype: str | torch.device | torch.dtype) -> "Model":
        """Move the weights to a device or convert them to a dtype, and return the model."""
        self.module.to(device_or_dtype)
        return self

    def trace(self, given: Any, target: Any = None, *, edits: "Sequence[Edit]" = ()) -> "Trace":
        """Record everything the model computes on a text, token ids or an image.

        A translator runs on `target` or, without one, on exactly the answer that `translate` gives
        for the text. If that has several parts, the trace is that of the first one and its `parts`
        lists the traces of all. Edits change what is computed, and so the answer.
        """
        from regard.generation.tracing import trace_answer

        return trace_answer(self, given, target, edits=edits)

    @overload
    def translate(
        self,
        texts: str,
        *,
        engine: str = ...,
        int8: bool = ...,
        edits: "Sequence[Edit]" = ...,
        trace: bool = ...,
        **search: "Unpack[SearchKeywords]",
    ) -> "Translation": ...
    @overload
    def translate(
        self,
        texts: list[str] | tuple[str, ...],
        *,
        engine: str = ...,
        int8: bool = ...,
        edits: "Sequence[Edit]" = ...,
        trace: bool = ...,
        **search: "Unpack[SearchKeywords]",
    ) -> "list[Translation]": ...
    def translate(
        self,
        texts: str | list[str] | tuple[str, ...],
        *,
        engine: str = "auto",
        int8: bool = False,
        edits: "Sequence[Edit]" = (),
        trace: bool = False,
        **search: "Unpack[SearchKeywords]",
    ) -> "Translation | list[Translation]":
        """Translate one text, or each of a list of texts.

        Args:
            engine: "ctranslate2", "torch", or "auto" for the fastest that can run the model.
            int8: compute with 8-bit weights.
            edits: changes to what the model computes; the torch engine searches under them.
            trace: add a trace to each translation.
            search: settings of the beam search, such as `beam=4`; see SearchOptions.
        """
        from regard.generation.search import SearchOptions

        options = SearchOptions(**search)
        lines = [texts] if isinstance(texts, str) else texts
        if edits:
            from regard.generation.tracing import translate_edited

            if int8:
                raise InputError("int8 cannot be combined with edits: use float32.")
            choose_engine(self.family, self.config.to_dict(), engine, torch_feature="edits")
            found = translate_edited(self, lines, options, edits)
        else:
            translator = self.translator(options, engine=engine, int8=int8)
            found = list(translator.translate(lines, options))
        if trace:
            from regard.generation.tracing import trace_translation

            found = [trace_translation(self, one, edits) for one in found]
        return found[0] if isinstance(texts, str) else found

    def generate(  # noqa: PLR0913  options of SamplingOptions
        self,
        prompt: str,
        *,
        max_tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        no_repeat: int = 0,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> "Generation":
        """Continue a prompt with a decoder-only model; see SamplingOptions.

        `on_text` is called with each new part of the text.
        """
        from regard.generation.predictions import generate
        from regard.generation.search import SamplingOptions

        options = SamplingOptions(
            max_tokens, temperature, top_k, top_p, repetition_penalty, no_repeat, seed
        )
        return generate(self, prompt, options, on_text)

    @overload
    def fill(self, texts: str, *, count: int = ...) -> "list[list[Candidate]]": ...
    @overload
    def fill(self, texts: list[str], *, count: int = ...) -> "list[list[list[Candidate]]]": ...
    def fill(self, texts: str | list[str], *, count: int = 5) -> Any:
        """Return the most probable tokens for each [MASK] of a text, or of each of several."""
        from regard.generation.predictions import fill

        if isinstance(texts, str):
            return fill(self, texts, count=count)
        return [fill(self, text, count=count) for text in texts]

    @overload
    def classify(self, images: list[Picture], *, count: int = ...) -> "list[list[Candidate]]": ...
    @overload
    def classify(self, images: Picture, *, count: int = ...) -> "list[Candidate]": ...
    def classify(self, images: Picture | list[Picture], *, count: int = 5) -> Any:
        """Return the most probable classes of an image (or text), or of each of a list."""
        from regard.generation.predictions import classify

        if isinstance(images, list | tuple):
            return [classify(self, one, count=count) for one in images]
        return classify(self, images, count=count)

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write the model folder; afterwards it is complete, or as it was before.

        Args:
            dtype: "float16" or "bfloat16" make the file half as large; unchanged if None.
        """
        settings = self.config.to_dict()
        own_target = None if self.target_tokenizer is self.tokenizer else self.target_tokenizer
        described = Description(
            family=settings.pop("family"),
            model=settings,
            task=self.task,
            tokenizer=None if self.tokenizer is None else self.tokenizer.roles,
            target_tokenizer=None if own_target is None else own_target.roles,
            labels=self.labels,
            pixels=None if self.pixels is None else asdict(self.pixels),
            extras=self.extras,
        )
        with atomic_folder(folder, names=MODEL_FILES) as fresh:
            write_weights(fresh / WEIGHTS, self.module, dtype=dtype)
            for name, one in ((TOKENIZER, self.tokenizer), (TARGET_TOKENIZER, own_target)):
                if one is not None:
                    write_tokenizer(fresh / name, one)
            write_atomic(fresh / CARD, str(self.card.filled(size=self._size(dtype))))
            write_atomic(fresh / CONFIG, described.to_json())

    @classmethod
    def load(cls, folder: str | Path, *, dtype: torch.dtype | None = torch.float32) -> "Model":
        """Read a folder that `save` wrote, in this version or an earlier one.

        Args:
            dtype: the type of the weights in memory; None keeps the stored type.
        """
        path = existing_folder(folder)
        if path is None:
            raise FileError(f"{folder} is not a folder: give the path of a model folder.")
        described = read_description(path)
        file = weights_file(path)
        with _blamed_on(path / CONFIG):
            config = config_from_dict({"family": described.family, **described.model})
            pixels = parse_normalization(described.pixels)
        module = build_from_weights(config, read_weights(file), dtype=dtype, source=file)
        source, target = read_tokenizers(path, described)
        with _blamed_on(path):
            return cls(
                module=module,
                task=described.task,
                tokenizer=source,
                target_tokenizer=target,
                labels=described.labels,
                pixels=pixels,
                card=read_card(path),
                extras=dict(described.extras),
                folder=path,
            )

    def _size(self, dtype: str | None) -> str:
        weights = list(self.module.parameters())
        each = None if dtype is None else getattr(torch, dtype).itemsize
        n_bytes = sum(weight.numel() * (each or weight.element_size()) for weight in weights)
        size = f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.1f} kB"
        return f"{sum(w.numel() for w in weights):,} parameters, {size}"

    def translator(
        self, options: "SearchOptions", *, engine: str = "auto", int8: bool = False
    ) -> "Translator":
        """Return the translator that `translate` uses with these options.

        CTranslate2 reads the model folder, so a model without one, or whose weights were changed
        after loading, is run by torch.
        """
        weights, feature = self._weights_state(), options.torch_feature
        if self.folder is None:
            feature = feature or "models that are not loaded from a folder"
        elif weights != self._loaded_weights:
            feature = feature or "weights that were changed after loading"
        _, target = self.translation_tokenizers()
        settings = self.config.to_dict()
        engine = choose_engine(self.family, settings, engine, int8=int8, torch_feature=feature)
        if engine == "torch":
            self.module.eval()
            # `weight.data` can be changed without a new version.
            weights += tuple((float(one.detach().sum()), 0) for one in self.module.parameters())
        key = engine, int8, weights
        if key in self._translators:
            return self._translators[key]
        if engine == "torch" or self.folder is None:
            from regard.generation.torch_engine import TorchEngine

            opened = TorchEngine([self.module], target, int8=int8)
            self._translators = {key: self.translator_with(opened)}
        else:
            from regard.generation.translator import open_translator

            self._translators[key] = open_translator(self.folder, engine=engine, int8=int8)
        return self._translators[key]

    def translation_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Return the source and target tokenizers; refuses a model that cannot translate."""
        source, target = self.tokenizer, self.target_tokenizer
        if self.task != "translation" or source is None or target is None:
            raise InputError(f"this is a model for {self.task}: load one for translation.")
        if target.start_id is None or target.end_id is None:
            raise InputError(
                "the target tokenizer has no start or no end token, so the model cannot write a "
                "target by itself: give one."
            )
        return source, target

    def _weights_state(self) -> tuple[tuple[float, int], ...]:
        """Return a value that changes when weights are written to or replaced."""
        weights = list(self.module.parameters())
        versions = (0 if one.is_inference() else one._version for one in weights)
        return tuple(zip((one.data_ptr() for one in weights), versions, strict=True))

    def translator_with(self, engine: "Engine") -> "Translator":
        """Return a translator with this model's tokenizers and limits, and a torch engine."""
        from regard.generation.translator import TORCH_WINDOW, Translator, translator_limits

        limits = translator_limits(self.extras, self.config.to_dict())
        return Translator(engine, *self.translation_tokenizers(), window=TORCH_WINDOW, **limits)

    def __repr__(self) -> str:
        name = "" if self.folder is None else f"{self.folder.name!r}, "
        return f"Model({name}{self.family} for {self.task}, {self.size})"


def load(name_or_folder: str | Path) -> Model:
    """Load the bundled model of this name, or the one in this folder."""
    from regard.interop.model_names import find_model

    return Model.load(find_model(name_or_folder))


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """Name the file or folder at fault in errors raised inside the block."""
    try:
        yield
    except RegardError as error:
        raise FileError(
            f"{path} cannot be used because {error} Fetch or save the model again."
        ) from error


def _check_vocabularies(model: Model) -> None:
    """Refuse a tokenizer that gives ids which the model has no embedding for."""
    config: ModelConfig = model.config
    n_target = getattr(config, "n_vocab", None)
    n_source = getattr(config, "n_source_vocab", None) or n_target
    pairs = [(model.tokenizer, n_source)]
    if model.family in ("transformer", "seq2seq"):
        pairs.append((model.target_tokenizer, n_target))
    for tokenizer, n_vocab in pairs:
        if tokenizer is not None and (n_vocab is None or len(tokenizer) > n_vocab):
            raise InputError(
                f"the tokenizer has {len(tokenizer):,} tokens, but the model was made for "
                f"{n_vocab or 0:,}: they do not belong together."
            )
