"""Whether the engines agree on 1,000 sentences, and how good int8 and a shortlist remain.

Run: python benchmarks/translate.py MODEL [--count 1000] [--reference FILE]
How fast they are is measured by `regard bench translate MODEL`.
"""

import argparse
import json
from itertools import islice
from pathlib import Path

from regard.bench.translation import agreement, sentences
from regard.files import read_lines
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from regard.generation.vocabulary_shortlist import SHORTLIST
from regard.interop.model_names import find_model


def bleu(texts: list[str], references: list[str]) -> float:
    import sacrebleu

    return round(sacrebleu.corpus_bleu(texts, [references]).score, 2)


def tell(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--source", type=Path, help="one sentence to a line; else Multi30k's")
    parser.add_argument("--reference", type=Path)
    options = parser.parse_args()
    folder = find_model(options.model)
    lines, origin = sentences(options.count)
    if options.source:
        lines = [line.decode() for line in islice(read_lines(str(options.source)), options.count)]
        origin = str(options.source.name)
    tell("sentences", f"{len(lines)} ({origin})")
    for beam in (1, 4):
        asked = SearchOptions(beam=beam)
        given = list(open_translator(folder, engine="ctranslate2").translate(lines, asked))
        plain = open_translator(folder, engine="torch")
        searched = list(plain.translate(lines, SearchOptions(beam=beam, beam_tree=True)))
        found = agreement(given, searched, plain.target.end_id or 0)
        tell(f"beam {beam}", {"same": found.same, "ties": found.ties})
    if options.reference:
        references = [
            line.decode() for line in islice(read_lines(str(options.reference)), len(lines))
        ]
        ways = {
            "float32": {},
            "int8": {"int8": True},
            "torch float32": {"engine": "torch"},
            "torch int8": {"engine": "torch", "int8": True},
        }
        if (folder / SHORTLIST).is_file():
            ways["float32, shortlist"] = {"shortlist": True}
            ways["int8, shortlist"] = {"int8": True, "shortlist": True}
        for name, way in ways.items():
            done = open_translator(folder, **way).translate(lines, SearchOptions())
            tell(f"BLEU, {name}", bleu([one.text for one in done], references))


if __name__ == "__main__":
    main()
