"""Export models for other systems."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from regard.errors import InputError, check_choice

if TYPE_CHECKING:
    from regard.model import Model

System = Literal["huggingface", "onnx", "ctranslate2", "gguf"]
SYSTEMS = get_args(System)


def export(
    model: "Model | str | Path", folder: str | Path, *, to: System, quantization: str | None = None
) -> str:
    """Write a model for another system; return a description of what was written.

    Args:
        model: a model, the name of a bundled model, or a model folder.
        to: "huggingface" for a folder that `transformers` loads, "onnx" for graphs with any batch
            size and length, "ctranslate2" for the fast engine, "gguf" for a file (instead of a
            folder) that llama.cpp and Ollama run.
        quantization: for "ctranslate2", the type of the stored weights: int8, int8_float32, int16,
            float16 or float32.
    """
    check_choice("to", to, SYSTEMS)
    if to == "ctranslate2":
        from regard.interop.ctranslate2 import convert
        from regard.interop.model_names import find_model

        with tempfile.TemporaryDirectory() as temporary:
            if isinstance(model, str | Path):
                source = find_model(model)
            else:
                model.save(source := Path(temporary))
            convert(source, folder, quantization=quantization)
        return "a CTranslate2 model"
    if quantization is not None:
        raise InputError(f"quantization is for ctranslate2; {to} keeps the weights as they are.")
    from regard.model import load

    loaded = load(model) if isinstance(model, str | Path) else model
    if to == "onnx":
        from regard.interop.onnx import export_onnx

        return ", ".join(export_onnx(loaded, folder))
    if to == "gguf":
        from regard.interop.gguf import export_gguf

        return export_gguf(loaded, folder)
    from regard.interop.huggingface import export_huggingface

    return export_huggingface(loaded, folder)
