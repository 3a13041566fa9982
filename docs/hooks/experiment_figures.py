"""Figures of the experiments, drawn from the numbers that their page lists."""

import re

from docs.hooks.page_blocks import figure_tag
from examples.experiments.lab import plot_lines

SECTION = re.compile(
    r"^`(?P<name>\w+)\.py`.*?^```text\n(?P<listing>.*?)^```$", re.MULTILINE | re.DOTALL
)
LINE = re.compile(r"^(?P<name>\S.*?) {2,}(?P<points>[\d.]+: [-\d.].*)$", re.MULTILINE)
POINT = re.compile(r"([\d.]+): (-?[\d.]+|inf|nan)")
AXES = {  # of the figure that each script draws: English, Korean
    "similarity_and_width": (("d_k", "error after training"), ("d_k", "학습 뒤의 오차")),
    "distance": (("length of the source", "right tokens"), ("원문의 길이", "맞은 토큰의 비율")),
    "data_hunger": (("training images", "accuracy"), ("학습 이미지 수", "정확도")),
    "number_of_heads": (("heads", "right tokens"), ("헤드 수", "맞은 토큰의 비율")),
    "warmup_and_norm": (("step", "training loss"), ("스텝", "학습 손실")),
    "unknown_tokens": (
        ("size of the vocabulary", "unknown tokens of a Korean text, %"),
        ("어휘 크기", "한국어 텍스트의 미등록 토큰(%)"),
    ),
    "dropout_left_on": (
        ("dropout", "largest difference of two eval calls"),
        ("드롭아웃", "eval 뒤 두 번 호출한 값의 최대 차이"),
    ),
    "beyond_the_trained_length": (("position", "right tokens"), ("위치", "맞은 토큰의 비율")),
}
KOREAN = {  # names of lines
    "additive": "가산 어텐션",
    "dot": "내적",
    "scaled_dot": "스케일드 내적",
    "RNN with attention": "어텐션이 있는 RNN",
    "Transformer": "트랜스포머",
    "linear": "선형",
    "convolution": "합성곱",
    "all heads": "모든 헤드",
    "one head off (mean)": "헤드 하나를 끔(평균)",
    "post-norm, warm-up": "post-norm, 웜업",
    "post-norm, none": "post-norm, 웜업 없음",
    "pre-norm, warm-up": "pre-norm, 웜업",
    "pre-norm, none": "pre-norm, 웜업 없음",
    "plain class": "일반 클래스",
    "sinusoidal": "사인·코사인",
    "learned": "학습된 위치",
    "rotary": "회전(RoPE)",
    "alibi": "ALiBi",
}
files: dict[str, bytes] = {}  # by path in the site


def add_figures(markdown: str, up: str, language: str) -> str:
    """Add the figure of each experiment below its numbers."""
    return SECTION.sub(lambda match: f"{match[0]}\n\n{image(match, up, language)}", markdown)


def image(match: re.Match, up: str, language: str) -> str:
    """Return the figure of an experiment."""
    names = KOREAN if language == "ko" else {}
    lines = {
        names.get(line["name"], line["name"]): [
            (float(x), float(y)) for x, y in POINT.findall(line["points"])
        ]
        for line in LINE.finditer(match["listing"])
    }
    axes = AXES[match["name"]][language == "ko"]
    name = f"figures/experiment-{match['name']}-{language}.svg"
    files[name] = plot_lines(lines, *axes).svg.encode()
    return figure_tag(f"{up}{name}", ", ".join(axes))
