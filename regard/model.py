"""The class that `regard.load` returns, and its folder on disk."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch

from regard.data.image_files import Picture
from regard.data.images import Normalization, parse_normalization
from regard.errors import FileError, InputError, as_texts, check_choice
from regard.files import atomic_folder, existing_folder, write_atomic
from regard.hardware import EngineCache
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
    blamed_on,
    check_labels,
    check_vocabulary,
    read_card,
    read_description,
    read_tokenizers,
    weights_file,
    write_tokenizer,
)
from regard.models import config as configs
from regard.models.config import ModelConfig, config_from_dict
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

    from regard.analysis.sweep import HeadSweep
    from regard.generation.predictions import Candidate, FilledGaps
    from regard.generation.search import (
        Engine,
        EngineKeywords,
        GenerateKeywords,
        ReadKeywords,
        SamplingKeywords,
        SearchKeywords,
        SearchOptions,
        TranslateKeywords,
    )
    from regard.generation.text_generation import Generation
    from regard.generation.translator import Translation, Translator
    from regard.trace.capture import RecordKeywords
    from regard.trace.edit import Edit
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
    checkpoint: Path | None = None  # a folder of transformers that it was imported from

    def __post_init__(self) -> None:
        if self.target_tokenizer is None:
            self.target_tokenizer = self.tokenizer
        check_choice("task", self.task, TASKS)
        n_target = getattr(self.config, "n_vocab", None)
        check_vocabulary(self.tokenizer, getattr(self.config, "n_source_vocab", None) or n_target)
        if self.family in ("transformer", "seq2seq"):
            check_vocabulary(self.target_tokenizer, n_target)
        check_labels(self.labels, getattr(self.config, "n_classes", None))
        self.open_engines = EngineCache()  # translators and text generators
        self._samples: dict[int, np.ndarray] = {}
        self.loaded_weights = self.weights_state()

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
        return configs.describe_size(self.module)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.module.parameters()).device

    def to(self, device_or_dtype: str | torch.device | torch.dtype) -> "Model":
        """Move the weights to a device or convert them to a dtype, and return the model."""
        self.module.to(device_or_dtype)
        return self

    def trace(self, given: Any, target: Any = None, **options: "Unpack[RecordKeywords]") -> "Trace":
        """Record everything the model computes on a text, token ids or an image.

        A translator runs on `target` or, without one, on exactly the answer that `translate` gives
        for the text. If that has several parts, the trace is that of the first one and its `parts`
        lists the traces of all. Edits change the answer; `engine` and `precision` search for it.
        `only` limits what is recorded; `gradients=True` adds `trace.gradients`: see RecordKeywords.
        """
        from regard.generation.tracing import trace_answer

        return trace_answer(self, given, target, **options)

    def traces(self, inputs: "Sequence[Any]", **options: "Unpack[RecordKeywords]") -> "list[Trace]":
        """Record each of several texts, lists of token ids or images."""
        return [self.trace(one, **options) for one in inputs]

    def sweep(
        self,
        given: Any,
        target: Any = None,
        *,
        to: str = "zero",
        edits: "Sequence[Edit]" = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> "HeadSweep":
        """Switch every head off in turn and measure the log-probability of the answer.

        Args:
            to: what replaces the output of a head, "zero" or "mean" (over the queries).
            progress: called with the heads measured so far and their total; raise in it to cancel.
        """
        from regard.analysis.sweep import sweep_heads

        return sweep_heads(self, given, target, to=to, edits=edits, progress=progress)

    @overload
    def translate(self, texts: str, **options: "Unpack[TranslateKeywords]") -> "Translation": ...
    @overload
    def translate(
        self, texts: list[str] | tuple[str, ...], **options: "Unpack[TranslateKeywords]"
    ) -> "list[Translation]": ...
    def translate(
        self,
        texts: str | list[str] | tuple[str, ...],
        *,
        engine: str = "auto",
        precision: str = "float32",
        int8: bool = False,
        edits: "Sequence[Edit]" = (),
        trace: bool = False,
        source_language: str | None = None,
        target_language: str | None = None,
        **search: "Unpack[SearchKeywords]",
    ) -> "Translation | list[Translation]":
        """Translate one text, or each of a list of texts.

        Args:
            engine: "ctranslate2", "torch", or "auto" for the fastest that can run the model.
            precision: "float32", "bfloat16" or "int8" (other texts now and then), or "auto".
            int8: the same as `precision="int8"`.
            edits: changes to what the model computes; the torch engine searches under them.
            trace: add a trace to each translation.
            source_language, target_language: of models that have many; see `between`.
            search: settings of the beam search, such as `beam=4`; see SearchOptions.
        """
        from regard.generation.search import SearchOptions
        from regard.generation.tracing import translate_texts

        asked: Any = {"edits": edits, "trace": trace}
        chosen: EngineKeywords = {"engine": engine, "precision": "int8" if int8 else precision}
        if source_language or target_language:
            asked |= {**chosen, **search}
            return self.between(source_language, target_language).translate(texts, **asked)
        lines, options = as_texts(texts), SearchOptions(**search)
        found = translate_texts(self, lines, options, opening=chosen, **asked)
        return found[0] if isinstance(texts, str) else found

    def between(self, source_language: str | None, target_language: str | None) -> "Model":
        """Return this model of many languages (M2M100, NLLB, mBART) as a translator of two."""
        from regard.interop.transformers_folder import choose_languages

        return choose_languages(self, source_language, target_language)

    @overload
    def generate(self, prompts: str, **options: "Unpack[GenerateKeywords]") -> "Generation": ...
    @overload
    def generate(
        self, prompts: list[str] | tuple[str, ...], **options: "Unpack[GenerateKeywords]"
    ) -> "list[Generation]": ...
    def generate(
        self,
        prompts: str | list[str] | tuple[str, ...],
        *,
        engine: str = "auto",
        precision: str = "float32",
        trace: bool = False,
        on_text: Callable[[str], None] | None = None,
        **sampling: "Unpack[SamplingKeywords]",
    ) -> "Generation | list[Generation]":
        """Continue a prompt, or each of a list of prompts, with a decoder-only model.

        Args:
            engine: "numpy", "ctranslate2", "torch", or "auto" for the fastest that is known.
            precision: "float32", "bfloat16", "int8" (other texts now and then), or "auto".
            trace: add a trace to each text, which marks tokens that float32 would not have chosen.
            on_text: called with each new part of the text.
            sampling: such as `temperature=0.8`; see SamplingOptions.
        """
        from regard.generation.model_engines import generator_of
        from regard.generation.search import SamplingOptions

        texts, options = as_texts(prompts, "prompts"), SamplingOptions(**sampling)
        chosen: EngineKeywords = {"engine": engine, "precision": precision}
        generator = generator_of(self, options, **chosen, n_prompts=len(texts))
        found = list(generator.generate(texts, options, on_text))
        if trace:
            from regard.generation.tracing import trace_generation

            found = [trace_generation(self, one, options) for one in found]
        return found[0] if isinstance(prompts, str) else found

    @overload
    def fill(self, texts: str, **options: "Unpack[ReadKeywords]") -> "list[list[Candidate]]": ...
    @overload
    def fill(self, texts: list[str], **options: "Unpack[ReadKeywords]") -> "list[FilledGaps]": ...
    def fill(self, texts: str | list[str], **options: "Unpack[ReadKeywords]") -> Any:
        """Return the most probable tokens for each [MASK] of a text, or of each of several."""
        from regard.generation.predictions import fill

        found = fill(self, as_texts(texts), **options)
        return found[0] if isinstance(texts, str) else found

    @overload
    def classify(
        self, images: list[Picture], **options: "Unpack[ReadKeywords]"
    ) -> "list[list[Candidate]]": ...
    @overload
    def classify(self, images: Picture, **options: "Unpack[ReadKeywords]") -> "list[Candidate]": ...
    def classify(self, images: Picture | list[Picture], **options: "Unpack[ReadKeywords]") -> Any:
        """Return the most probable classes of an image (or text), or of each of a list."""
        from regard.generation.predictions import classify

        if isinstance(images, list | tuple):
            return classify(self, images, **options)
        return classify(self, [images], **options)[0]

    def embed(
        self,
        texts: str | list[str],
        *,
        normalize: bool | None = None,
        **engine: "Unpack[EngineKeywords]",
    ) -> "np.ndarray":
        """Return the vector of a text, or one row for each of a list of texts.

        `normalize` makes every vector of length 1; by default as the checkpoint says.
        """
        from regard.generation.predictions import embed

        found = embed(self, as_texts(texts), normalize=normalize, **engine)
        return found[0] if isinstance(texts, str) else found

    def describe(self) -> Description:
        """Return what config.json of a model folder says about the model."""
        settings, target = self.config.to_dict(), self.target_tokenizer
        return Description(
            family=settings.pop("family"),
            model=settings,
            task=self.task,
            tokenizer=None if self.tokenizer is None else self.tokenizer.roles,
            target_tokenizer=None if target is None or target is self.tokenizer else target.roles,
            labels=self.labels,
            pixels=None if self.pixels is None else asdict(self.pixels),
            extras=self.extras,
        )

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write the model folder, or leave it as it was; "float16" halves its size."""
        if not isinstance(self.config, ModelConfig):
            raise InputError("this model cannot be saved by regard: keep the original.")
        described = self.describe()
        own_target = self.target_tokenizer if described.target_tokenizer is not None else None
        with atomic_folder(folder, names=MODEL_FILES) as fresh:
            configs.write_weights(fresh / WEIGHTS, self.module, dtype=dtype)
            for name, one in ((TOKENIZER, self.tokenizer), (TARGET_TOKENIZER, own_target)):
                if one is not None:
                    write_tokenizer(fresh / name, one)
            size = configs.describe_size(self.module, dtype)
            write_atomic(fresh / CARD, str(self.card.filled(size=size)))
            write_atomic(fresh / CONFIG, described.to_json())

    @classmethod
    def load(cls, folder: str | Path, *, dtype: torch.dtype | None = torch.float32) -> "Model":
        """Read a folder that `save` wrote, in this version or an earlier one.

        Weights in memory have the `dtype`; None keeps the stored type.
        """
        path = existing_folder(folder)
        if path is None:
            raise FileError(f"{folder} is not a folder: give the path of a model folder.")
        described, file = read_description(path), weights_file(path)
        with blamed_on(path / CONFIG):
            config = config_from_dict({"family": described.family, **described.model})
            pixels = parse_normalization(described.pixels)
        weights = configs.read_weights(file)
        module = configs.build_from_weights(config, weights, dtype=dtype, source=file)
        source, target = read_tokenizers(path, described)
        with blamed_on(path):
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

    def translator(
        self, options: "SearchOptions", *, engine: str = "auto", precision: str = "float32"
    ) -> "Translator":
        """Return the translator that `translate` uses with these options."""
        from regard.generation.model_engines import translator_of

        return translator_of(self, options, engine=engine, precision=precision)

    def translation_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Return the source and target tokenizers; refuses a model that cannot translate."""
        source, target = self.tokenizer, self.target_tokenizer
        if self.task != "translation" or source is None or target is None:
            raise InputError(f"this is a model for {self.task}: load one for translation.")
        if target.start_id is None or target.end_id is None:
            raise InputError("the target tokenizer has no start or no end token: give a target.")
        if not isinstance(self.config, ModelConfig):
            from regard.interop.transformers_folder import check_languages

            check_languages(self)
        return source, target

    @property
    def changed(self) -> bool:
        """True if weights were changed after loading."""
        with self.open_engines.lock:  # an engine that is being opened may move them
            return self.weights_state() != self.loaded_weights

    def weights_state(self) -> tuple[Any, ...]:
        """Return a value that changes when weights are written to or replaced."""
        with self.open_engines.lock:
            return configs.weights_state(self.module, self._samples)

    def translator_with(self, engine: "Engine") -> "Translator":
        """Return a translator with this model's tokenizers and limits, and a torch engine."""
        from regard.generation.translator import TORCH_WINDOW, Translator, translator_limits

        limits = translator_limits(self.extras, self.config.to_dict())
        return Translator(engine, *self.translation_tokenizers(), window=TORCH_WINDOW, **limits)

    def __repr__(self) -> str:
        name = "" if self.folder is None else f"{self.folder.name!r}, "
        return f"Model({name}{self.family} for {self.task}, {self.size})"


def load(
    model: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    dtype: str = "float32",
    device: str | None = None,
) -> Model:
    """Load a bundled model by name, the model in a folder, or a torch module in memory.

    A model that is not of regard's families runs as it is, with the same methods.

    Args:
        tokenizer, processor: of transformers (or a tokenizer's file), if the folder has none.
        dtype: of the weights: "float32", "bfloat16", "float16", or "stored" as they are.
        device: of the weights, such as "cuda"; by default "cpu", or that of --device.
    """
    from regard.interop.model_names import open_model

    given = {"tokenizer": tokenizer, "processor": processor}
    return open_model(model, **given, dtype=dtype, device=device)
