"""`regard shortlist`: learn which tokens a translation may be made of."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import InputError


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
    from regard.bundle.folder import read_description, read_tokenizers
    from regard.engine.shortlist import SHORTLIST
    from regard.explain.shortlist import learn_shortlist
    from regard.interop.named import find_model
    from regard.text.files import read_lines

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
    learnt = learn_shortlist(pairs, ours, theirs or ours, per_token=per_token, frequent=frequent)
    learnt.save(folder, ours, theirs or ours)
    size = len(set(chain(learnt.always, *learnt.words.values())))
    typer.echo(
        f"{folder / SHORTLIST}: {len(learnt.words):,} source tokens, {size:,} target tokens",
        err=True,
    )
