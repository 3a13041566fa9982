"""The page as one file: joined scripts, packed arrays, size."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError
from regard.models.encoder import Encoder, EncoderConfig
from regard.server import html_export
from regard.server.html_export import (
    PAGE,
    Quantized,
    as_html,
    estimate_size,
    joined_script,
    joined_style,
    pack,
)
from regard.trace.capture import trace_model


@pytest.fixture
def small():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 2, 4, 6), site="s")
    return trace


@pytest.fixture(scope="module")
def texts():
    """Pages of a 12-layer encoder with 64 tokens, by width."""

    def page(d_model):
        torch.manual_seed(0)
        config = EncoderConfig(
            n_vocab=50, d_model=d_model, n_heads=12, n_layers=12, d_ff=8, fill_head=False
        )
        model = regard.Model(module=Encoder(config).eval(), task="masked")
        return as_html(trace_model(model, torch.randint(0, 50, (64,)).tolist()))

    return {d_model: page(d_model) for d_model in (384, 768)}


def data_of(text):
    return json.loads(re.search(r'id="regard-data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_trace_writes_its_page(small, tmp_path):
    small.html(tmp_path / "x.html", title="my model")
    text = (tmp_path / "x.html").read_text("utf-8")
    assert "<title>regard: my model</title>" in text
    assert data_of(text)["about"]["title"] == "my model"
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]


def test_the_page_loads_nothing(small):
    text = as_html(small)
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]+)""", text)
    assert [one for one in addresses if one.startswith(("http", "//"))] == []
    # the name of a namespace, not an address
    assert set(re.findall(r"https?://[\w./-]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_tokens_cannot_break_out_of_the_page(small):
    small.tokens = {"source": ["</script><b>", "<!--", "&amp;", "나는"]}
    text = as_html(small, title="</title><script>")
    assert data_of(text)["about"]["tokens"] == small.tokens
    assert text.count("</script>") == 2
    assert "<title>regard: &lt;/title&gt;" in text
    assert "나는" in text


@pytest.mark.long
@pytest.mark.parametrize(("d_model", "megabytes"), [(384, 2.6), (768, 5)])
def test_64_tokens_of_12_layers_and_12_heads_keep_half_precision(texts, d_model, megabytes):
    assert len(texts[d_model].encode()) <= megabytes * 1e6
    data = data_of(texts[d_model])
    assert data["arrays"]["encoder.layers.11.self.query"]["dtype"] == "float16"
    assert data["about"]["digits"] == 3
    assert data["about"]["sites"][0]["left_out"]


def test_sites_mention_only_arrays_of_the_page(texts):
    data = data_of(texts[384])
    for site in data["about"]["sites"]:
        names = [*site["arrays"].values(), *site["streams"].values()]
        assert set(names) <= set(data["arrays"])
        assert site["projections"] is None


def test_the_size_follows_the_limit(small):
    data = data_of(as_html(small, megabytes=0.001))  # too small for any page
    assert data["arrays"]["s.query"]["dtype"] == "int8"
    assert data["about"]["digits"] == 1
    with pytest.raises(InputError, match="megabytes is 0"):
        as_html(small, megabytes=0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A page of two modules."""
    (tmp_path / "js" / "views").mkdir(parents=True)
    (tmp_path / "js/one.js").write_text(
        "// a module\n/** @type {number} */\nexport const ONE = 1;\n"
        "export function twice(/** @type {number} */ x) {\n  return 2 * x;\n}\n"
    )
    (tmp_path / "js/views/two.js").write_text(
        'import { ONE, twice as double } from "../one.js";\n'
        "export const FOUR = double(ONE + ONE);\n"
    )
    monkeypatch.setattr(html_export, "PAGE", tmp_path)
    joined_script.cache_clear()
    yield tmp_path
    joined_script.cache_clear()


def test_modules_become_functions_without_comments_in_order_of_import(folder):
    assert joined_script("js/views/two.js") == (
        "const $one = (() => {\nconst ONE = 1;\nfunction twice(x) {\n  return 2 * x;\n}\n"
        "return { ONE, twice };\n})();\n"
        "const $views_two = (() => {\nconst { ONE, twice: double } = $one;\n"
        "const FOUR = double(ONE + ONE);\nreturn { FOUR };\n})();"
    )


def test_cyclic_imports_are_found(folder):
    (folder / "js/one.js").write_text(
        'import { FOUR } from "./views/two.js";\nexport const ONE = 1;\n'
    )
    with pytest.raises(AssertionError, match=r"two\.js → one\.js → two\.js"):
        joined_script("js/views/two.js")


@pytest.mark.parametrize(
    "line", ["export default 3;", 'import x from "./one.js";', "export { x };"]
)
def test_statements_that_cannot_be_joined_are_found(folder, line):
    (folder / "js/one.js").write_text(f"{line}\n")
    with pytest.raises(AssertionError, match="cannot be joined"):
        joined_script("js/one.js")


def test_the_page_itself_is_joined():
    script, style = joined_script(), joined_style()
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert "startFromPage" in script
    names = re.findall(r"^const (\$\w+) = \(\(\) =>", script, re.MULTILINE)
    assert len(names) == len(set(names)) > 20
    assert ".regard .panes" in style
    assert "@import" not in style
    assert "url(" not in style


def test_every_module_of_the_page_is_small_and_well_named():
    for path in (PAGE / "js").rglob("*.js"):
        assert len(path.read_text("utf-8").splitlines()) <= 400, path.name
        assert path.stem not in {"utils", "util", "helpers", "common", "base", "manager"}


NUMBERS = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)


def unpack(packed):
    """Decode as the page does."""
    data = zlib.decompress(base64.b64decode(packed["data"]), -zlib.MAX_WBITS)
    shape, dtype = packed["shape"], packed["dtype"]
    if dtype == "uint8":
        return np.frombuffer(data, np.uint8).reshape(shape)
    if dtype == "int8":
        n_rows = int(np.prod(shape[:-1]))
        step = np.frombuffer(data[: 2 * n_rows], np.uint8).reshape(2, -1).T.copy().view("<f2")
        counts = np.frombuffer(data[2 * n_rows :], np.int8).reshape(n_rows, -1)
        return (counts * step.astype(np.float32)).reshape(shape)
    size = int(dtype[-2:]) // 8
    planes = np.frombuffer(data, np.uint8).reshape(size, -1).T.copy()
    return planes.view(f"<f{size}").reshape(shape)


def test_float_encodings_are_those_of_numpy():
    assert (unpack(pack(NUMBERS, "float32")) == NUMBERS).all()
    assert (unpack(pack(NUMBERS, "float16")) == NUMBERS.astype(np.float16)).all()
    assert np.isfinite(unpack(pack(np.array([1e6, -1e6], np.float32), "float16"))).all()


@pytest.mark.parametrize("most", [127, 64])
def test_quantized_numbers_are_off_by_half_a_step_at_most(most):
    found = unpack(pack(NUMBERS, Quantized(most)))
    step = np.abs(NUMBERS).max(-1, keepdims=True) / most
    assert (np.abs(found - NUMBERS) <= 0.502 * step + 1e-3 * np.abs(NUMBERS)).all()


def test_quantized_numbers_by_hand():
    # the largest number of the row is 127 steps of 1/64
    row = np.array([[127 / 64, -1.0, 0.0, 1 / 64], [0.0] * 4], np.float32)
    assert unpack(pack(row, Quantized(127))).tolist() == row.tolist()


def test_bytes_stay_bytes():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    packed = pack(pixels, Quantized(127))
    assert packed["dtype"] == "uint8"
    assert (unpack(packed) == pixels).all()


@pytest.mark.parametrize("encoding", ["float32", "float16", Quantized(127), Quantized(64)])
def test_the_estimated_size_is_near_the_real_one(encoding):
    many = np.random.default_rng(1).normal(size=(40, 64, 32)).astype(np.float32)
    size = len(pack(many, encoding)["data"])
    assert 0.85 * size < estimate_size(many, encoding) < 1.02 * size
