"""Open a folder of the library transformers, imported if possible, otherwise as it is.

Code of a checkpoint is never run, and pickled weights are never read.

`attn_implementation="regard"` gives models of transformers the attention of regard. Without a
listener, the kernel of transformers runs. Inside `regard.watch()`, also without a model,
the attention of every layer is recorded and can be edited: "layers.0", "layers.1", …

Translators of many languages (M2M100, NLLB, mBART) have a special token for each language: the
source carries that of its language, and the translation is forced to start with that of the other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import processors
from torch import Tensor, nn

from regard.attention.attend import tapped_attention
from regard.attention.mask import Causal
from regard.attention.pattern import ExactPattern
from regard.errors import (
    FileError,
    InputError,
    MissingExtraError,
    UnknownNameError,
    first_line,
    nearest,
)
from regard.interop.adapters import AdaptedTransformer
from regard.interop.any_model import KNOWN, adapt, convert_tokenizer
from regard.interop.bert import read_sentence_modules
from regard.interop.families import read_settings
from regard.interop.import_checkpoint import (
    identify,
    import_checkpoint,
    read_checkpoint_card,
    sentence_extras,
)
from regard.model import Model
from regard.model_folder import weights_file
from regard.tap import listening, path_of
from regard.text.tokenizer import Tokenizer, added_ids
from regard.trace.products import dot_similarity, read_mask
from regard.trace.watched_model import WATCHES

NAME = "regard"


def register_attention() -> str:
    """Make `attn_implementation="regard"` known to transformers, and return that name.

    A model uses it if it is loaded with `attn_implementation="regard"`, or after
    `model.set_attn_implementation("regard")`.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise MissingExtraError(
            "this needs transformers: pip install 'regard[interop]'."
        ) from error
    AttentionInterface.register(NAME, regard_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def regard_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention with the signature of transformers' attention functions."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if WATCHES.get() or not listening():  # a watched model sees the call of torch's function
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **options}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given)
    groups = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    allowed, table = read_mask(attention_mask)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and query.size(2) > 1:
        allowed = Causal()
    factor = query.size(-1) ** -0.5 if scaling is None else scaling
    similarity = dot_similarity(factor, query.size(-1), table)
    index = getattr(module, "layer_idx", None)
    name = type(module).__name__ if index is None else f"layers.{index}"
    pattern = ExactPattern(similarity, factor, 1.0, allowed)
    options = {"site": path_of(name, module), "dropout": dropout}
    context = tapped_attention(query, key, value, pattern, **options)
    return context.transpose(1, 2).contiguous(), None


_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "merges.txt")


def open_folder(
    folder: Path,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    dtype: torch.dtype | None = torch.float32,
) -> Model:
    """Open a folder of the library transformers: imported if possible, otherwise as it is.

    A model that runs as it is keeps the type of its weights.
    """
    if _has_importer(folder) and processor is None:
        if tokenizer is None or isinstance(tokenizer, str | Path):
            return import_checkpoint(folder, tokenizer=tokenizer, dtype=dtype)
        model = import_checkpoint(folder, dtype=dtype)
        return replace(model, tokenizer=convert_tokenizer(tokenizer), target_tokenizer=None)
    module = load_module(folder)
    given = _read_tokenizer(folder) if tokenizer is None else tokenizer
    model = adapt(module, tokenizer=given, processor=processor or _read_processor(folder))
    origin = {"opened from": folder.resolve().name}
    model.card = replace(read_checkpoint_card(folder), others=origin)
    if (sentences := read_sentence_modules(folder)) is not None:
        model.module.config = replace(model.config, pool=sentences.pool)
        model.extras |= sentence_extras(folder)
    return model


def _has_importer(folder: Path) -> bool:
    try:
        family, settings = identify(read_settings(folder))
        family.read_config(settings)
    except InputError:  # another family, or settings that only the original honors
        return False
    return True


def load_module(folder: Path, *, attention: str | None = None) -> nn.Module:
    """Build the class that config.json names, with all of its weights.

    Args:
        attention: an implementation of transformers, such as "eager"; its own choice by default.
    """
    transformers = _import_transformers()
    settings = read_settings(folder)
    kind = getattr(transformers, settings.architecture, None)
    if kind is None or not hasattr(kind, "from_pretrained"):
        raise InputError(
            f"{settings.file} has the architecture {settings.architecture or 'of no name'}, which "
            "the installed transformers does not have, and regard never runs code of a checkpoint: "
            f"give a model of an architecture of transformers ({KNOWN})."
        )
    if not any(folder.glob("*.safetensors")):
        weights_file(folder)  # says what is wrong
    try:
        with _quiet(transformers):
            module, info = kind.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, in a sentence
                dtype=torch.float32,
                attn_implementation=attention,
            )
    except Exception as error:  # the library raises many types
        raise FileError(
            f"{folder} cannot be opened by transformers: {first_line(error)}."
        ) from error
    _check_weights(folder, module, info)
    return module.eval()


def _check_weights(folder: Path, module: nn.Module, info: Mapping[str, Any]) -> None:
    """Refuse weights that config.json does not describe."""
    known = {re.sub(r"\d+", "#", name) for name in module.state_dict()}
    extra = [name for name in info["unexpected_keys"] if re.sub(r"\d+", "#", name) in known]
    lost = sorted([*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])])
    if lost or extra:
        what = f"no fitting {lost[0]}" if lost else f"{min(extra)}, which is too much"
        raise FileError(
            f"the weights of {folder} do not match its config.json: they have {what} "
            f"({len(lost) + len(extra)} such tensors): download the checkpoint again."
        )


def _read_tokenizer(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a folder; None if it has none."""
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return Tokenizer.load(folder)
    if not any(folder.glob("*.model")) and not any(folder.glob("*vocab*")):
        return None
    transformers = _import_transformers()
    try:
        with _quiet(transformers):
            found = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise FileError(
            f"the tokenizer of {folder} cannot be read: {first_line(error)}."
        ) from error
    return convert_tokenizer(found)


def _read_processor(folder: Path) -> Any:
    """Return the image processor of a folder; None if it has none."""
    if not (folder / "preprocessor_config.json").is_file():
        return None
    transformers = _import_transformers()
    try:
        with _quiet(transformers):
            return transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise FileError(
            f"{folder / 'preprocessor_config.json'} cannot be used: {first_line(error)}."
        ) from error


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            "to open this model, install transformers: pip install 'regard[interop]'."
        ) from error
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers from printing progress and advice."""
    log = transformers.utils.logging
    level, shown = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if shown:
            log.enable_progress_bar()


_CODE = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")


def find_languages(tokenizer: Tokenizer | None) -> dict[str, int]:
    """Return the ids of the tokens that stand for languages, by the language's code."""
    if tokenizer is None:
        return {}
    found = {}
    for id in sorted(tokenizer.special_ids):
        match = _CODE.fullmatch(tokenizer.token_of(id))
        if match:
            found[match[1] or match[2]] = id
    return found


def choose_languages(
    model: Model, source_language: str | None, target_language: str | None
) -> Model:
    """Return the same model with tokenizers for two languages; weights are shared."""
    known = find_languages(model.tokenizer)
    if len(known) < 2 or not isinstance(model.module, AdaptedTransformer):
        raise InputError(
            "this model does not have several languages: leave out source_language and "
            "target_language."
        )
    if source_language is None or target_language is None:
        raise InputError(
            "a model of several languages needs both source_language and target_language, such as "
            f"{' and '.join(list(known)[:2])}."
        )
    assert model.tokenizer is not None
    assert model.target_tokenizer is not None
    source, target = (_language_id(known, code) for code in (source_language, target_language))
    module = copy(model.module)
    languages = set(known.values())
    start = model.target_tokenizer.start_id
    roles = dict(model.target_tokenizer.roles)
    if start in languages:  # mBART 25: the decoder starts with the language itself
        roles["start"] = model.tokenizer.token_of(target)
        module.forced_ids = ()
    else:
        module.forced_ids = (target,)
    reader = _marked(model.tokenizer, source, languages)
    writer = _marked(Tokenizer(_copied(model.target_tokenizer), roles=roles), target, languages)
    return replace(model, module=module, tokenizer=reader, target_tokenizer=writer)


def check_languages(model: Model) -> None:
    """Refuse a translator of many languages whose target language nothing says."""
    known = set(find_languages(model.tokenizer).values())
    target = model.target_tokenizer
    forced = getattr(model.module, "forced_ids", ())
    chosen = known & {*forced, None if target is None else target.start_id}
    if isinstance(model.module, AdaptedTransformer) and len(known) > 1 and not chosen:
        names = ", ".join(list(find_languages(model.tokenizer))[:6])
        raise InputError(
            f"this model translates between {len(known)} languages ({names}, …): give "
            "source_language and target_language."
        )


def _language_id(known: dict[str, int], code: str) -> int:
    """Return the id of a language by its code, or by the start of it if that is enough."""
    if code in known:
        return known[code]
    begins = [name for name in known if name.partition("_")[0] == code]
    if len(begins) != 1:
        raise UnknownNameError(f"the model has no language {code!r}; {nearest(code, known)}.")
    return known[begins[0]]


def _marked(tokenizer: Tokenizer, language: int, languages: set[int]) -> Tokenizer:
    """Return a tokenizer whose texts carry the token of a language, where others have theirs."""
    front, back = added_ids(tokenizer)
    if languages & {*front, *back}:
        front, back = ([language if id in languages else id for id in ids] for ids in (front, back))
    else:
        end = [] if tokenizer.end_id is None else [tokenizer.end_id]
        front, back = [language], back or end
    backend = _copied(tokenizer)
    backend.post_processor = _template(tokenizer, front, back)
    return Tokenizer(backend, roles=tokenizer.roles)


def _template(
    tokenizer: Tokenizer, front: Sequence[int], back: Sequence[int]
) -> processors.TemplateProcessing:
    named = [(name, ids) for name, ids in (("front", front), ("back", back)) if ids]
    single = " ".join(["front"] * bool(front) + ["$A"] + ["back"] * bool(back))
    return processors.TemplateProcessing(
        single=single,
        special_tokens=[
            {"id": name, "ids": list(ids), "tokens": [tokenizer.token_of(id) for id in ids]}
            for name, ids in named
        ],
    )


def _copied(tokenizer: Tokenizer) -> Backend:
    return Backend.from_str(tokenizer.backend.to_str())
