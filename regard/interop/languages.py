"""Translators of many languages (M2M100, NLLB, mBART): choose the source and the target language.

Such a vocabulary has a special token for each language. The source carries that of its language,
and the translation is forced to start with that of the other.
"""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from regard.errors import InputError, UnknownNameError, nearest
from regard.interop.adapters import AdaptedTransformer
from regard.model import Model
from regard.text.tokenizer import Tokenizer, added_ids

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
