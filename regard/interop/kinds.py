"""All kinds of Hugging Face folders that regard reads and writes."""

from dataclasses import replace

from regard.errors import InputError
from regard.interop.bert import BERT
from regard.interop.checkpoint import Settings
from regard.interop.distilbert import DISTILBERT
from regard.interop.gpt2 import GPT2
from regard.interop.kind import Kind
from regard.interop.llama import LLAMA
from regard.interop.marian import MARIAN, PEGASUS
from regard.interop.vit import DEIT, VIT

KINDS: tuple[Kind, ...] = (BERT, DISTILBERT, GPT2, LLAMA, VIT, DEIT, MARIAN, PEGASUS)


def spoken_kinds() -> str:
    """All kinds that can be imported, for the end of a sentence."""
    types = ", ".join(model_type for kind in KINDS for model_type in kind.model_types)
    return f"{types} and llama2.c binaries"


def identify(settings: Settings) -> tuple[Kind, Settings]:
    """The kind of a checkpoint, or a refusal that lists those there are.

    Settings that do not name the head get that of the kind's plainest model.
    """
    kinds = {model_type: kind for kind in KINDS for model_type in kind.model_types}
    if settings.kind not in kinds:
        raise InputError(
            f"{settings.file} describes a model of the kind {settings.kind!r}, which regard does "
            f"not import; it imports {spoken_kinds()}."
        )
    kind = kinds[settings.kind]
    if not settings.architecture:
        plainest = [next(iter(kind.architectures))]
        settings = replace(settings, values={**settings.values, "architectures": plainest})
    if settings.architecture not in kind.architectures:
        raise InputError(
            f"{settings.file} describes a {settings.architecture}, whose head regard does not "
            f"have; of {kind.name} it imports {', '.join(kind.architectures)}."
        )
    return kind, settings
