"""`regard import`: a checkpoint of another system becomes a model folder."""

import json
from pathlib import Path
from typing import Annotated

import typer


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
    from regard.interop.imports import import_checkpoint

    bundle = import_checkpoint(checkpoint, tokenizer=tokenizer)
    bundle.save(output, dtype=dtype)
    n_vocab = None if bundle.tokenizer is None else len(bundle.tokenizer)
    if as_json:
        facts = {"folder": str(output), "family": bundle.family, "task": bundle.task}
        typer.echo(json.dumps({**facts, "size": bundle.size, "tokens": n_vocab}))
        return
    typer.echo(f"{output}: {bundle.family} model for {bundle.task}, {bundle.size}")
    if n_vocab is not None:
        typer.echo(f"tokenizer of {n_vocab:,} tokens")
    elif bundle.family != "vision":
        typer.echo("no tokenizer was found: name one with --tokenizer, or give token ids", err=True)
