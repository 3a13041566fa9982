"""`regard export`: a model folder becomes a model of another system."""

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import InputError, UnknownNameError, nearest

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
    from regard.interop.named import find_model

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
        from regard.bundle.bundle import Bundle
        from regard.interop.onnx import export_onnx

        what = ", ".join(export_onnx(Bundle.load(folder), output))
    else:
        from regard.bundle.bundle import Bundle
        from regard.interop.huggingface import export_huggingface

        what = f"as {export_huggingface(Bundle.load(folder), output)}"
    typer.echo(f"{output}: {what}")
