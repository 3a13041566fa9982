"""`regard shortlist`: learn which tokens a translation may be made of."""

import json
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import InputError, UnknownNameError, nearest


def import_command(
    checkpoint: Annotated[
        str, typer.Argument(help="A Hugging Face folder, a hub name or a llama2.c .bin file.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model folder to write.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer's file or folder, if it is elsewhere.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="How weights are stored: float32, float16 or bfloat16.")
    ] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a model folder of a checkpoint of another system.

    BERT, DistilBERT, GPT-2, Llama, Mistral, Qwen2, ViT, DeiT, Marian and Pegasus are read from
    Hugging Face folders or by their names on the hub, and Llamas from llama2.c's binaries. Pickled
    files are never opened.

    Example: regard import bert-base-uncased -o bert
    """
    from regard.interop.import_checkpoint import import_checkpoint

    model = import_checkpoint(checkpoint, tokenizer=tokenizer)
    model.save(output, dtype=dtype)
    n_vocab = None if model.tokenizer is None else len(model.tokenizer)
    if as_json:
        facts = {"folder": str(output), "family": model.family, "task": model.task}
        typer.echo(json.dumps({**facts, "size": model.size, "tokens": n_vocab}))
        return
    typer.echo(f"{output}: {model.family} model for {model.task}, {model.size}")
    if n_vocab is not None:
        typer.echo(f"tokenizer of {n_vocab:,} tokens")
    elif model.family != "vision":
        typer.echo("no tokenizer was found: name one with --tokenizer, or give token ids", err=True)


SYSTEMS = ("huggingface", "onnx", "ctranslate2")


def export_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    to: Annotated[str, typer.Option(help="huggingface, onnx or ctranslate2.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    quantization: Annotated[
        str | None, typer.Option(help="For ctranslate2: int8, int8_float32, int16, float16.")
    ] = None,
) -> None:
    """Write a model for another system, with the same results there.

    huggingface: a folder for `transformers` (BERT, DistilBERT, GPT-2, Llama, ViT, DeiT, Marian or
    Pegasus, whichever the model is). onnx: graphs for any batch and length. ctranslate2: a folder
    for the fast engine, for Transformers and decoder-only models.

    Example: regard export en-de --to onnx -o en-de-onnx
    """
    from regard.interop.model_names import find_model

    if to not in SYSTEMS:
        raise UnknownNameError(
            f"there is no export to {to!r}, only to {', '.join(SYSTEMS)}; {nearest(to, SYSTEMS)}."
        )
    if quantization is not None and to != "ctranslate2":
        raise InputError(f"--quantization is for ctranslate2; {to} keeps the weights as they are.")
    folder = find_model(model)
    if to == "ctranslate2":
        from regard.interop.ctranslate2 import convert

        convert(folder, output, quantization=quantization)
        what = "for CTranslate2"
    elif to == "onnx":
        from regard.interop.onnx import export_onnx
        from regard.model import Model

        what = ", ".join(export_onnx(Model.load(folder), output))
    else:
        from regard.interop.huggingface import export_huggingface
        from regard.model import Model

        what = f"as {export_huggingface(Model.load(folder), output)}"
    typer.echo(f"{output}: {what}")


def shortlist_command(
    model: Annotated[str, typer.Argument(help="A model folder that translates.")],
    source: Annotated[Path, typer.Argument(help="Sentences, one to a line; plain, .gz or .zst.")],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.")],
    per_token: Annotated[int, typer.Option(help="Tokens that each token may become.")] = 50,
    frequent: Annotated[int, typer.Option(help="Frequent tokens that are always allowed.")] = 100,
) -> None:
    """Learn a shortlist from the training data and put it into the model folder.

    `regard translate --shortlist` then computes only the probabilities of what a sentence's words
    may become: faster, and nearly always the same.

    Example: regard shortlist en-de train.en.gz train.de.gz
    """
    from regard.evaluation.ibm_model1 import learn_shortlist
    from regard.files import read_lines
    from regard.generation.vocabulary_shortlist import SHORTLIST
    from regard.interop.model_names import find_model
    from regard.model_folder import read_description, read_tokenizers

    if min(per_token, frequent) < 1:
        raise InputError(f"per-token is {per_token}, frequent {frequent}; both must be 1 or more.")
    folder = find_model(model)
    described = read_description(folder)
    ours, theirs = read_tokenizers(folder, described)
    if described.task != "translation" or ours is None:
        raise InputError(f"{folder} holds a model for {described.task}; only translators have one.")
    lines = (
        (line.decode(errors="replace") for line in read_lines(str(f))) for f in (source, target)
    )
    try:
        pairs = list(zip(*lines, strict=True))
    except ValueError as error:
        raise InputError(f"{source} and {target} have not the same number of lines.") from error
    learned = learn_shortlist(pairs, ours, theirs or ours, per_token=per_token, frequent=frequent)
    learned.save(folder, ours, theirs or ours)
    size = len(set(chain(learned.always, *learned.words.values())))
    typer.echo(
        f"{folder / SHORTLIST}: {len(learned.words):,} source tokens, {size:,} target tokens",
        err=True,
    )
