"""The table of tapped names in docs/taps.md lists exactly what models tap."""

import re
from pathlib import Path

import pytest
import torch

from regard.models.config import FAMILIES, build, config_class
from regard.tap import listen

TABLE = Path(__file__).resolve().parents[2] / "docs" / "taps.md"
SIDES = {
    "transformer": ["encoder", "decoder"],
    "seq2seq": ["encoder", "decoder"],
    "encoder": ["encoder"],
    "decoder": ["decoder"],
    "vision": ["encoder"],
}
SITES = {
    "transformer": ["encoder.layers.N.self", "decoder.layers.N.self", "decoder.layers.N.cross"],
    "seq2seq": ["decoder.cross"],
    "encoder": ["encoder.layers.N.self"],
    "decoder": ["decoder.layers.N.self"],
    "vision": ["encoder.layers.N.self"],
}
CELLS = ["encoder.layers.N.forward", "encoder.layers.N.backward", "decoder.layers.N"]
IDS = torch.tensor([[1, 2, 3]])


class NameCollector:
    """Collects every name, also those that only the definition of attention taps."""

    changes = False

    def __init__(self):
        self.names: set[tuple[str, str]] = set()

    def wants(self, path: str) -> bool:
        return True

    def see(self, tapped):
        place = re.sub(r"layers\.\d+", "layers.N", re.sub(r"@\d+", "", tapped.path))
        self.names.add((place, tapped.axes))
        return tapped.value


def written(family: str) -> set[tuple[str, str]]:
    """The names and axes that the table has for a family."""
    rows = [line.split("|")[1:5] for line in TABLE.read_text().splitlines() if "| `" in line]
    names = set()
    for path, axes, _, families in (map(str.strip, row) for row in rows):
        if families == "all" or family in families.split(", "):
            for expanded in expand(path.strip("`"), family):
                names.add((expanded, axes))
    return names


def expand(path: str, family: str) -> list[str]:
    placeholders = {"SIDE": SIDES[family], "SITE": SITES[family], "CELL": CELLS}
    word = path.partition(".")[0]
    return [path.replace(word, place, 1) for place in placeholders.get(word, [word])]


def make(family: str, **fields) -> torch.nn.Module:
    small = {"d_model": 8, "n_heads": 2, "d_ff": 12} if family != "seq2seq" else {"d_model": 8}
    torch.manual_seed(0)
    return build(config_class(family)(**small, **fields)).eval()


def run(family: str) -> set[tuple[str, str]]:
    with listen(collector := NameCollector()):
        if family == "transformer":
            model = make(family, n_vocab=5, n_encoder_layers=1, n_decoder_layers=1)
            model(IDS, IDS, [3], [3])
        elif family == "seq2seq":
            for cell in ("lstm", "gru"):
                make(family, n_vocab=5, cell=cell)(IDS, IDS, [3], [3])
        elif family == "decoder":
            model = make(family, n_vocab=5, n_layers=1)
            model(IDS, cache=(cache := model.new_cache()))
            model(IDS, cache=cache)
        elif family == "encoder":
            model = make(family, n_vocab=5, n_layers=1, n_token_types=2, n_classes=2)
            states = model(IDS, [3])
            model.fill_logits(states)
            model.classify(states)
        else:
            model = make(family, n_classes=2, n_layers=1, image_size=4, patch_size=2)
            model(torch.zeros(1, 3, 4, 4))
    return collector.names


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_lists_exactly_what_a_family_taps(family):
    assert run(family) == written(family)


def test_every_row_of_the_table_belongs_to_some_family():
    rows = [line for line in TABLE.read_text().splitlines() if "| `" in line]
    lists = [row.split("|")[4].strip() for row in rows]
    assert all(one == "all" or set(one.split(", ")) <= set(FAMILIES) for one in lists)
    assert len(rows) > 40
