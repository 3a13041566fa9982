"""`regard import`, `regard export` and `regard shortlist`: convert models."""

from itertools import chain
from pathlib import Path

import typer
from typer import Argument, Option

from regard.cli.options import JsonFlag, ModelArgument
from regard.cli.output import print_json, say
from regard.errors import InputError


def import_command(
    checkpoint: str = Argument(help="Hugging Face folder, hub name or llama2.c .bin file."),
    output: Path = Option(..., "-o", "--output", help="Model folder to write."),
    tokenizer: Path | None = Option(None, help="Tokenizer to use instead of the checkpoint's own."),
    dtype: str = Option("float32", help="Type of stored weights: float32, float16 or bfloat16."),
    as_json: JsonFlag = False,
) -> None:
    """Convert a checkpoint of another system to a model folder.

    BERT, DistilBERT, GPT-2, Llama, Mistral, Qwen2, ViT, DeiT, Marian and Pegasus are read from
    Hugging Face folders or downloaded from the hub; Llama models also from llama2.c binaries.
    Pickled files are never opened.

    Example: regard import bert-base-uncased -o bert
    """
    from regard.interop.import_checkpoint import import_checkpoint
    from regard.models.config import STORED, describe_size

    wanted = STORED.get(dtype, STORED["float32"])  # others are refused when the model is saved
    model = import_checkpoint(checkpoint, tokenizer=tokenizer, dtype=wanted)
    model.save(output, dtype=dtype)
    n_vocab = None if model.tokenizer is None else len(model.tokenizer)
    size = describe_size(model.module, dtype)
    if as_json:
        facts = {"folder": str(output), "family": model.family, "task": model.task}
        print_json({**facts, "size": size, "tokens": n_vocab})
        return
    say(f"{output}: {model.family} model for {model.task}, {size}")
    if n_vocab is not None:
        say(f"tokenizer of {n_vocab:,} tokens")
    elif model.family != "vision":
        say("no tokenizer was found: give one with --tokenizer, or use token ids", err=True)


def export_command(
    model: ModelArgument,
    to: str = Option(help="Target system: huggingface, onnx, ctranslate2 or gguf."),
    output: Path = Option(..., "-o", "--output", help="Folder to write."),
    quantization: str | None = Option(
        None, help="Weights of ctranslate2: int8, int8_float32, int16, float16."
    ),
) -> None:
    """Write a model for another system, with the same results there.

    huggingface: a folder for `transformers` (BERT, DistilBERT, GPT-2, Llama, ViT, DeiT, Marian or
    Pegasus, depending on the model). onnx: graphs for any batch size and length. ctranslate2: a
    folder for the fast engine, for Transformers and decoder-only models.

    Example: regard export en-de --to onnx -o en-de-onnx
    """
    from regard.interop.export import export

    written = export(model, output, to=to, quantization=quantization)  # type: ignore[arg-type]
    typer.echo(f"{output}: {written}")


def shortlist_command(
    model: str = Argument(help="Folder of a translation model."),
    source: Path = Argument(help="Sentences, one per line; plain, .gz or .zst."),
    target: Path = Argument(help="Their translations, line by line."),
    per_token: int = Option(50, min=1, help="Target tokens for each source token."),
    frequent: int = Option(100, min=1, help="Number of frequent tokens that are always allowed."),
) -> None:
    """Learn a vocabulary shortlist from training data and store it in the model folder.

    `regard translate --shortlist` then computes only the probabilities of likely target tokens,
    which is faster and rarely changes a translation.

    Example: regard shortlist models/en-de train.en.gz train.de.gz
    """
    from regard.evaluation.alignment import learn_shortlist
    from regard.files import read_lines
    from regard.generation.ctranslate2_engine import SHORTLIST
    from regard.interop.model_names import bundled, find_model
    from regard.model_folder import read_description, read_tokenizers

    folder = find_model(model)
    if folder in bundled().values():
        raise InputError(
            f"{model} is part of the package, which is not changed: copy {folder} and give the "
            "copy."
        )
    described = read_description(folder)
    ours, theirs = read_tokenizers(folder, described)
    if described.task != "translation" or ours is None:
        raise InputError(
            f"{folder} is a model for {described.task}; only translation models have shortlists."
        )
    lines = (
        (line.decode(errors="replace") for line in read_lines(str(f))) for f in (source, target)
    )
    try:
        pairs = list(zip(*lines, strict=True))
    except ValueError as error:
        raise InputError(f"{source} and {target} have different numbers of lines.") from error
    learned = learn_shortlist(pairs, ours, theirs or ours, per_token=per_token, frequent=frequent)
    learned.save(folder, ours, theirs or ours)
    size = len(set(chain(learned.always, *learned.words.values())))
    counts = f"{len(learned.words):,} source tokens, {size:,} target tokens"
    say(f"{folder / SHORTLIST}: {counts}", err=True)
