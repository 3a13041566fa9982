"""What `regard.load` returns: a network with its tokenizers, configuration and card."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.data.image_files import Picture, parse_normalization
from regard.data.images import Normalization
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
    from regard.generation.text_generation import Generation
    from regard.generation.translator import LineTranslator, Translation
    from regard.trace.edits import Edit
    from regard.trace.trace import Trace


@dataclass(eq=False, kw_only=True, repr=False)
class Model:
    """A model of any family, ready to be run, looked into and saved.

    Methods import what they call when they are called, so that loading a model stays light.
    """

    module: Any
    """The network, a torch module of one of the families in regard.models."""
    task: str
    tokenizer: Tokenizer | None = None
    """Turns the source into ids; None for a model that reads no text."""
    target_tokenizer: Tokenizer | None = None
    """The same for the target; `tokenizer` unless given."""
    labels: tuple[str, ...] | None = None
    pixels: Normalization | None = None
    """How the pixels of images are scaled."""
    card: Card = field(default_factory=Card)
    extras: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    """The folder it was loaded from."""

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
        self._translators: dict[tuple[Any, ...], LineTranslator] = {}
        self._loaded = self._state()

    @property
    def config(self) -> Any:
        """The configuration of the network."""
        return self.module.config

    @property
    def family(self) -> str:
        """The kind of network: transformer, seq2seq, encoder, decoder or vision."""
        return self.config.family

    @property
    def size(self) -> str:
        """The number of parameters and of bytes, for people."""
        return self._size(None)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.module.parameters()).device

    def to(self, device_or_dtype: str | torch.device | torch.dtype) -> "Model":
        """Move the weights to a device, or convert them to a type; returns the model itself."""
        self.module.to(device_or_dtype)
        return self

    def trace(self, given: Any, target: Any = None, *, edits: "Sequence[Edit]" = ()) -> "Trace":
        """Record everything the model computes on a text, ids or an image, changed by `edits`.

        Models with a target run on the one that is given, or on what they write themselves.
        """
        from regard.trace.capture import trace_model

        return trace_model(self, given, target, edits=edits)

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        engine: str = "auto",
        int8: bool = False,
        trace: bool = False,
        **options: Any,
    ) -> Any:
        """Translate one text or a list of texts.

        The engine "auto" is the fastest that can run the model: CTranslate2 for Transformers,
        PyTorch for all others. With `trace`, each translation has a trace of everything this model
        computes when it writes exactly that, whichever engine has found it. With `beam_tree`,
        PyTorch searches, and each translation has a `beam_tree` of all sequences considered.
        """
        from regard.generation.search import SearchOptions

        search = SearchOptions(**options)
        translator = self._translator(engine, int8, search.only_torch)
        lines = [texts] if isinstance(texts, str) else texts
        found = list(translator.translate(lines, search))
        found = [self._traced(one) for one in found] if trace else found
        return found[0] if isinstance(texts, str) else found

    def _traced(self, translation: "Translation") -> "Translation":
        """Add a trace of each part: what was written is read once, as in training."""
        target = self.target_tokenizer
        assert target is not None, "it has just translated"
        traces = [
            self.trace(part.source_ids, [target.start_id, *part.ids, target.end_id])
            for part in translation.parts
            if not part.copied
        ]
        return replace(translation, traces=tuple(traces))

    def generate(self, prompt: str, **options: Any) -> "Generation":
        """Continue a prompt with a decoder-only model; see SampleOptions."""
        from regard.generation.predictions import generate

        return generate(self, prompt, **options)

    def fill(self, text: str, *, count: int = 5) -> "list[list[Candidate]]":
        """Return the most probable tokens for each [MASK] of a text."""
        from regard.generation.predictions import fill

        return fill(self, text, count=count)

    def classify(self, images: Sequence[Picture], *, count: int = 5) -> "list[list[Candidate]]":
        """Return the most probable classes of each image (or text)."""
        from regard.generation.predictions import classify

        return classify(self, images, count=count)

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write the model folder; afterwards it is complete, or as it was before.

        Args:
            dtype: "float16" or "bfloat16" make the file half as large; unchanged if None.
        """
        settings = self.config.to_dict()
        own_target = None if self.target_tokenizer is self.tokenizer else self.target_tokenizer
        family = settings.pop("family")
        described = Description(
            family=family,
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
            if self.tokenizer is not None:
                write_tokenizer(fresh / TOKENIZER, self.tokenizer)
            if own_target is not None:
                write_tokenizer(fresh / TARGET_TOKENIZER, own_target)
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
        module: nn.Module = build_from_weights(config, read_weights(file), dtype=dtype, source=file)
        tokenizer, target_tokenizer = read_tokenizers(path, described)
        with _blamed_on(path):
            return cls(
                module=module,
                task=described.task,
                tokenizer=tokenizer,
                target_tokenizer=target_tokenizer,
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

    def _translator(self, engine: str, int8: bool, only_torch: str) -> "LineTranslator":
        """Open an engine once; a model without a folder has only PyTorch's.

        So has one whose weights are no longer those of its folder.
        """
        from regard.generation.translator import choose_engine, open_translator

        state = self._state()
        if self.folder is not None:
            described = read_description(self.folder)
            if state != self._loaded:
                only_torch = only_torch or "weights that were changed after loading"
            engine = choose_engine(described, engine, int8=int8, only_torch=only_torch)
        chosen = engine, int8, state if int8 else None
        if chosen not in self._translators:
            if self.folder is None or engine == "torch":
                self._translators[chosen] = self._torch_translator(int8=int8)
            else:
                self._translators[chosen] = open_translator(self.folder, engine=engine, int8=int8)
        return self._translators[chosen]

    def _state(self) -> tuple[tuple[int, int], ...]:
        """Return what changes when weights are written to or replaced."""
        weights = list(self.module.parameters())
        counted = (0 if one.is_inference() else one._version for one in weights)
        return tuple(zip((one.data_ptr() for one in weights), counted, strict=True))

    def _torch_translator(self, *, int8: bool) -> "LineTranslator":
        from regard.generation.torch_engine import PlainEngine
        from regard.generation.translator import SLOW_WINDOW, LineTranslator, lengths_of, room_of

        tokenizer, target = self.tokenizer, self.target_tokenizer
        if self.task != "translation" or tokenizer is None or target is None:
            raise InputError(f"this is a model for {self.task}; it cannot translate.")
        return LineTranslator(
            PlainEngine([self.module.eval()], target, int8=int8),
            tokenizer,
            target,
            **lengths_of(self.extras),
            room=room_of(self.config.to_dict()),
            window=SLOW_WINDOW,
        )

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
            f"{path} cannot be used because {error} Fetch the folder again, or save the model again."
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
