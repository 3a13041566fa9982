import json
import re

import pytest
import torch

import regard
from regard.errors import InputError
from regard.models.encoder import Encoder, EncoderConfig
from regard.server import html_export as export
from regard.server.html_export import as_html
from regard.trace.capture import trace_model


@pytest.fixture
def trace():
    with regard.watch() as made:
        regard.attend(*torch.randn(3, 1, 2, 4, 6), site="s")
    return made


def data_of(text):
    return json.loads(re.search(r'id="regard-data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_trace_writes_itself(trace, tmp_path):
    trace.html(tmp_path / "x.html", title="my model")
    text = (tmp_path / "x.html").read_text("utf-8")
    assert "<title>regard: my model</title>" in text
    assert data_of(text)["about"]["title"] == "my model"
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]


def test_the_page_names_nothing_outside_itself(trace):
    text = as_html(trace)
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]+)""", text)
    assert [one for one in addresses if one.startswith(("http", "//"))] == []
    known = {"http://www.w3.org/2000/svg"}  # names of languages, not addresses to ask
    assert set(re.findall(r"https?://[\w./-]+", text)) <= known


def test_tokens_cannot_break_out_of_the_page(trace):
    trace.tokens = {"source": ["</script><b>", "<!--", "&amp;", "x"]}
    text = as_html(trace, title="</title><script>")
    assert data_of(text)["about"]["tokens"] == trace.tokens
    assert text.count("</script>") == 2
    assert "<title>regard: &lt;/title&gt;" in text


def test_korean_stays_korean(trace):
    trace.tokens = {"source": ["나는", "개를", "본다", "."]}
    assert data_of(as_html(trace))["about"]["tokens"]["source"][0] == "나는"


def big(d_model: int):
    torch.manual_seed(0)
    config = EncoderConfig(
        n_vocab=50, d_model=d_model, n_heads=12, n_layers=12, d_ff=8, fill_head=False
    )
    model = regard.Model(module=Encoder(config).eval(), task="masked")
    return trace_model(model, torch.randint(0, 50, (64,)).tolist())


@pytest.mark.parametrize(("d_model", "dtype", "digits"), [(384, "float16", 3), (768, "int8", 2)])
def test_64_tokens_of_12_layers_and_12_heads_take_two_and_a_half_megabytes(d_model, dtype, digits):
    text = as_html(big(d_model))
    assert len(text.encode()) <= 2.5e6
    data = data_of(text)
    assert data["arrays"]["encoder.layers.11.self.query"]["dtype"] == dtype
    assert data["about"]["digits"] == digits
    assert data["about"]["sites"][0]["left_out"]


def test_more_room_holds_more(trace):
    plans = export._PLANS
    sizes = [len(_with([plan], trace)) for plan in plans]
    assert sizes[0] == max(sizes)
    assert sizes[-1] == min(sizes)


def _with(plans, trace):
    before, export._PLANS = export._PLANS, tuple(plans)
    try:
        return as_html(trace)
    finally:
        export._PLANS = before


def test_a_page_that_cannot_be_that_small_is_as_small_as_it_can_be(trace):
    data = data_of(as_html(trace, megabytes=0.001))
    assert data["arrays"]["s.query"]["dtype"] == "int8"


def test_sites_mention_only_what_the_page_holds():
    data = data_of(as_html(big(384)))
    for site in data["about"]["sites"]:
        names = [*site["arrays"].values(), *site["streams"].values()]
        assert set(names) <= set(data["arrays"])
        assert site["projections"] is None


def test_no_room_at_all_is_refused(trace):
    with pytest.raises(InputError, match="megabytes is 0"):
        as_html(trace, megabytes=0)
