"""Figures of the slips: wrong numbers next to right ones, computed when the site is built."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from docs.hooks.page_blocks import figure_tag
from regard.figures.captions import text_width
from regard.figures.colors import FAINT, HAIRLINE, INK, ROLES, shade
from regard.figures.drawing import Box, Drawing, Text, add_frame
from regard.figures.formats import Figure
from regard.layers.embedding import sinusoid
from regard.text.tokenizer_training import train_tokenizer

HEADING = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
X = torch.tensor([[1.0, 0, 1], [0, 2, 0], [1, 1, 1]])
W_Q = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]])
W_K = torch.tensor([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 1, 1]])
KOREAN = {
    "wrong": "틀림",
    "right": "맞음",
    "undivided": "나누지 않음",
    "pair": "쌍",
    "position": "위치",
    "head": "헤드",
    "key": "키",
    "query": "쿼리",
    "variance": "분산",
    "gradient norm": "기울기 노름",
    "output": "출력",
    "fifth": "다섯째",
    "value": "밸류",
    "weights within ±": "가중치 범위 ±",
    "variance of the outputs": "출력의 분산",
    "row sum": "행의 합",
    "scaling form": "스케일링 형태",
    "softmax form": "소프트맥스 형태",
    "no softmax": "소프트맥스 없음",
    "attention": "어텐션",
    "call": "호출",
    "bias": "편향",
    "unknown tokens": "미등록 토큰 수",
    "width asked for": "요청한 너비",
    "width": "너비",
    "does not fit the stream": "스트림에 더할 수 없음",
    "fits the stream": "스트림에 더할 수 있음",
    "cannot be multiplied": "곱할 수 없음",
    "keys (source)": "키(원문)",
    "keys (target)": "키(번역문)",
    "queries (target)": "쿼리(번역문)",
    "norm": "노름",
    "dot product": "내적",
    "cosine": "코사인",
}


@dataclass(frozen=True)
class Table:
    """Numbers or texts in rows with a heading; "wrong" and "right" have colors."""

    heading: str
    cells: Sequence[Sequence[float | str]]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    @staticmethod
    def of(
        heading: str, values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()
    ) -> "Table":
        """Return a table of the numbers of a matrix or vector."""
        return Table(heading, values.detach().reshape(-1, values.size(-1)).tolist(), rows, columns)


def _exponent() -> list[Table]:
    positions = torch.arange(1.0, 6)
    wrong = torch.stack([torch.sin(positions / 10000 ** (8 / (2 * i))) for i in (1, 2)])
    right = sinusoid(6, 8)[1:, 2:6:2].T
    names = {
        "rows": ["pair 1", "pair 2"],
        "columns": [f"position {p:g}" for p in positions],
    }
    return [Table.of("wrong", wrong, **names), Table.of("right", right, **names)]


def _padding_shape() -> list[Table]:
    scores, seen = torch.zeros(2, 2, 1, 3), regard.padding([3, 1]).tensor(1, 3, lead=(2,))
    return [
        Table.of(
            name,
            scores.masked_fill(~mask, -torch.inf).softmax(-1)[0, :, 0],
            ("head 0", "head 1"),
            ("key 0", "key 1", "key 2"),
        )
        for name, mask in (("wrong", seen), ("right", seen[:, None]))
    ]


def _padding_only() -> list[Table]:
    x = torch.randn(1, 5, 8)
    later = x + F.one_hot(torch.tensor(4), 5)[:, None]
    tables = []
    for name, mask in (
        ("wrong", regard.padding([5])),
        ("right", regard.padding([5]) & regard.causal()),
    ):
        one, other = (regard.attend(y, y, y, allowed=mask) for y in (x, later))
        change = (other - one).norm(dim=-1)
        tables.append(Table.of(name, change, (), [f"position {p}" for p in range(5)]))
    return tables


def _large_number() -> list[Table]:
    keys = ("key 0", "key 1", "key 2")
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    right = regard.attend(torch.ones(1, 2), torch.ones(3, 2), torch.eye(3), allowed=nothing)
    return [
        Table.of("wrong", torch.full((1, 3), -1e9).softmax(-1), ("−1e9",), keys),
        Table.of("wrong", torch.full((1, 3), -torch.inf).softmax(-1), ("−∞",), keys),
        Table.of("right", right, (), keys),
    ]


def _deviation() -> list[Table]:
    x = torch.tensor([1.0, 2, 4])
    wrong, right = (x - x.mean()) / (x.std() + 1e-5), F.layer_norm(x, (3,))
    return [
        Table.of(name, torch.cat([y, y.var(correction=0)[None]]), (), ("1", "2", "4", "variance"))
        for name, y in (("wrong", wrong), ("right", right))
    ]


def _relu() -> list[Table]:
    logits = torch.tensor([2.0, -1, -3])
    return [
        Table.of(name, one.softmax(-1), (), ("2", "−1", "−3"))
        for name, one in (("wrong", logits.relu()), ("right", logits))
    ]


def _five_layers() -> list[Table]:
    layer = regard.MultiHeadAttention(8, 2)
    layer.fifth = nn.Linear(8, 8)
    layer(torch.randn(1, 3, 8)).square().sum().backward()
    linear = [(name, part) for name, part in layer.named_modules() if isinstance(part, nn.Linear)]
    names = [name.removeprefix("to_") for name, _ in linear]
    norms: list[float | str] = [
        "–" if part.weight.grad is None else part.weight.grad.norm().item() for _, part in linear
    ]
    row = ("gradient norm",)
    return [Table("wrong", [norms], row, names), Table("right", [norms[:-1]], row, names[:-1])]


def _xavier() -> list[Table]:
    x, tables = torch.randn(500, 300), []
    for name, bound in (("wrong", 1 / 100), ("right", math.sqrt(6 / 400))):
        y = x @ torch.empty(300, 100).uniform_(-bound, bound)
        cells = [f"{one:.3f}" for one in (bound, y.var().item())]
        tables.append(Table(name, [cells], (), ("weights within ±", "variance of the outputs")))
    return tables


def _sizes() -> list[Table]:
    return [
        Table("wrong", [["1 × 3", "4 × 4", "cannot be multiplied"]]),
        Table("right", [["1 × 3", "3 × 4", "1 × 4"]]),
    ]


def _current_position() -> list[Table]:
    return [
        Table.of(
            name,
            regard.causal(offset=offset).tensor(3).reshape(3, 3).float(),
            [f"query {i}" for i in range(3)],
            [f"key {i}" for i in range(3)],
        )
        for name, offset in (("wrong", -1), ("right", 0))
    ]


def _whole_matrix() -> list[Table]:
    scores = torch.tensor([[3.0, 6, 6], [6, 0, 6], [6, 6, 9]]) / 2
    both = (("wrong", scores.flatten().softmax(0).view(3, 3)), ("right", scores.softmax(-1)))
    return [
        Table.of(name, torch.cat([one, one.sum(-1, keepdim=True)], -1), (), ("", "", "", "row sum"))
        for name, one in both
    ]


def _efficient() -> list[Table]:
    q, k, v = torch.randn(3, 6, 4).unbind()
    exact = regard.attend(q, k, v)
    plain = q @ k.T / 6 @ v
    return [
        Table.of(
            "wrong",
            torch.stack([regard.efficient_attention(q, k, v)[0], exact[0]]),
            ("softmax form", "attention"),
        ),
        Table.of(
            "right",
            torch.stack(
                [regard.efficient_attention(q, k, v, normalization="scaling")[0], plain[0]]
            ),
            ("scaling form", "no softmax"),
        ),
    ]


def _lost_token() -> list[Table]:
    right = ["[CLS]", "hello", ",", "how", "are", "you", "doing", "?", "[SEP]"]
    wrong = [token for token in right if token != ","]
    return [
        Table(name, [tokens], (str(len(tokens)),))
        for name, tokens in (("wrong", wrong), ("right", right))
    ]


class Plain:
    """A part with dropout that is not an nn.Module."""

    def __init__(self):
        self.dropout = nn.Dropout(0.5)

    def __call__(self, x: Tensor) -> Tensor:
        return self.dropout(x)


class Outer(nn.Module):
    """A model that consists of one part."""

    def __init__(self, part: Callable[[Tensor], Tensor]):
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


def _plain_class() -> list[Table]:
    tables = []
    for name, part in (("wrong", Plain()), ("right", nn.Dropout(0.5))):
        model, x = Outer(part).eval(), torch.ones(6)
        calls = torch.stack([model(x), model(x)])
        tables.append(Table.of(name, calls, ("call 1", "call 2")))
    return tables


def _biases() -> list[Table]:
    wrong = nn.Linear(64, 64)
    sizes = {"n_vocab": 9, "d_model": 64, "n_heads": 4, "d_ff": 64, "n_layers": 1}
    built: Any = regard.build({"family": "decoder", **sizes})
    right = built.decoder.layers[0].feed_forward.inner.to_hidden
    return [
        Table.of(name, one.bias[:5], ("bias",))
        for name, one in (("wrong", wrong), ("right", right))
    ]


def _unknown() -> list[Table]:
    counts = {}
    for kind in ("bpe", "wordpiece", "byte-bpe"):
        small = train_tokenizer(["low lower lowest"], kind=kind, vocab_size=280, min_frequency=1)
        counts[kind] = small.encode("low 국수", specials=False).count(small.required_id("unknown"))
    cells = [[str(count)] for count in counts.values()]
    return [Table("“low 국수”", cells, list(counts), ("unknown tokens",))]


def _ignored_argument() -> list[Table]:
    asked = (64, 128, 256)
    return [
        Table(
            name,
            [[str(nn.Embedding(10, width(one)).weight.size(1))] for one in asked],
            [f"width asked for {one}" for one in asked],
            ("width",),
        )
        for name, width in (("wrong", lambda _: 512), ("right", lambda one: one))
    ]


def _output_shape() -> list[Table]:
    joined, stream, tables = torch.ones(1, 512), torch.ones(1, 512), []
    for name, columns in (("wrong", 64), ("right", 512)):
        output = joined @ torch.ones(512, columns)
        fits = "fits the stream" if output.shape == stream.shape else "does not fit the stream"
        tables.append(Table(name, [[f"512 × {columns}", f"1 × {columns}", fits]]))
    return tables


def _divisor() -> list[Table]:
    scores = torch.randn(256) @ torch.randn(8, 256).T
    order = scores.argsort(descending=True)
    return [
        Table.of(name, (scores / by).softmax(-1)[order][:6], (row,))
        for name, by, row in (
            ("undivided", 1, "1"),
            ("wrong", 256, "d_k"),
            ("right", 16, "√d_k"),
        )
    ]


def _raw_embeddings() -> list[Table]:
    return [Table.of("wrong", X @ X.T), Table.of("right", X @ W_Q @ (X @ W_K).T)]


def _targets() -> list[Table]:
    trace = regard.load("dates-transformer").trace("3. Oktober 1990")
    target, source = "".join(trace.tokens["output"][:-1]), "".join(trace.tokens["source"][1:-1])
    return [
        Table("wrong", [[target, target]], (), ("queries (target)", "keys (target)")),
        Table("right", [[target, source]], (), ("queries (target)", "keys (source)")),
    ]


def _norms() -> list[Table]:
    a, b = F.normalize(torch.randn(2, 5), dim=-1)
    cosine = (a @ b).item()
    return [
        Table(
            name,
            [[f"{size**2 * cosine:.2f}", f"{cosine:.2f}"]],
            (f"norm {size}",),
            ("dot product", "cosine"),
        )
        for name, size in (("wrong", 10), ("right", 1))
    ]


TABLES: tuple[Callable[[], list[Table]], ...] = (
    _exponent,
    _padding_shape,
    _padding_only,
    _large_number,
    _deviation,
    _relu,
    _five_layers,
    _xavier,
    _sizes,
    _current_position,
    _whole_matrix,
    _efficient,
    _lost_token,
    _plain_class,
    _biases,
    _unknown,
    _ignored_argument,
    _output_shape,
    _divisor,
    _raw_embeddings,
    _targets,
    _norms,
)
"""What is wrong and what is right, for each slip in the order of the page."""
files: dict[str, bytes] = {}  # by path in the site


def add_figures(markdown: str, up: str, language: str) -> str:
    """Add the figure of each slip at the end of its section."""
    first, *parts = re.split(r"^(?=## \d+\. )", markdown, flags=re.MULTILINE)
    return first + "".join(part.rstrip() + f"\n\n{image(part, up, language)}\n\n" for part in parts)


def image(section: str, up: str, language: str) -> str:
    """Return the figure of the slip that a section is about."""
    match = HEADING.match(section)
    assert match is not None, section[:40]
    name = f"figures/slip-{match[1]}-{language}.svg"
    heading = f"{match[1]}. {match[2].rpartition(' [')[0]}".replace("`", "").replace("**", "")
    files[name] = Figure(drawn(int(match[1]), heading, language)).svg.encode()
    return figure_tag(f"{up}{name}", heading)


def drawn(number: int, heading: str, language: str) -> Drawing:
    """Draw the tables of a slip next to each other, or below each other if they are wide."""
    torch.manual_seed(0)
    inner, left = Drawing(0, 0), 0.0
    for table in TABLES[number - 1]():
        one = draw_table(table, language)
        if left and left + one.width > 720:
            inner.place_below(one, gap=18)
            continue
        inner.place(one, left, 0)
        left += one.width + 36
        inner.width, inner.height = max(inner.width, left - 36), max(inner.height, one.height)
    return add_frame(inner, heading, [], language)


def draw_table(table: Table, language: str) -> Drawing:
    """Draw a heading and cells; the area of the color is the number, as in a pattern."""
    texts = [[one if isinstance(one, str) else f"{one:.2f}" for one in row] for row in table.cells]
    texts = [[said(one, language) for one in row] for row in texts]
    rows, columns = ([said(one, language) for one in part] for part in (table.rows, table.columns))
    margin = max((text_width(one, 12) + 10 for one in rows), default=0)
    shown = [*texts, columns] if columns else texts
    widths = [max(44.0, *(text_width(x, 12) + 14 for x in one)) for one in zip(*shown, strict=True)]
    top = 22 + 20 * bool(columns)
    heading = said(table.heading, language)
    drawing = Drawing(max(margin + sum(widths), text_width(heading, 13)), top + 26 * len(texts))
    color = {"wrong": ROLES["negative"], "right": ROLES["value"]}.get(table.heading, INK)
    drawing.add(Text(0, 13, heading, 13, bold=True, color=color))
    largest = largest_number(table)
    for i, row in enumerate(texts):
        x, y = margin, top + 26 * i
        if rows:
            drawing.add(Text(margin - 8, y + 17, rows[i], 12, "end", color=FAINT))
        for j, (text, width) in enumerate(zip(row, widths, strict=True)):
            value = table.cells[i][j]
            share = abs(value) / largest if isinstance(value, float) and value == value else 0.0
            drawing.add(Box(x, y, width, 26, shade(share), HAIRLINE, tooltip=text))
            ink = "#FFFFFF" if share > 0.45 else INK
            drawing.add(Text(x + width / 2, y + 17, text, 12, "middle", color=ink))
            if columns and not i:
                drawing.add(Text(x + width / 2, top - 6, columns[j], 12, "middle", color=FAINT))
            x += width
    return drawing


def largest_number(table: Table) -> float:
    """Return the largest absolute number, at least 1."""
    numbers = [abs(x) for row in table.cells for x in row if isinstance(x, float) and x == x]
    return max([1.0, *numbers])


def said(text: str, language: str) -> str:
    """Return a label in a language; numbers in it stay."""
    if language != "ko":
        return text
    for english in sorted(KOREAN, key=len, reverse=True):
        if text == english or text.startswith(f"{english} ") or text.endswith(f" {english}"):
            return text.replace(english, KOREAN[english])
    return text
