"""The gallery: every kind of figure, drawn by the command that stands above it."""

import re
import shlex
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from docs.hooks.page_blocks import figure_tag
from regard.cli.main import app
from regard.figures.kinds import CONCEPT_KINDS, KINDS, TRACE_KINDS

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = 'dates-transformer "12 août 2021"'
DIGIT = "digits regard/zoo/digits/examples/3.png"
ARGUMENTS = {  # of kinds that need others than TEXT, or than none
    "additive": 'dates "12 août 2021" --query 5',
    "compare": f"{TEXT} --site decoder.layers.0.cross --head 3 --other-head 1",
    "architecture": "base",
    "image": DIGIT,
    "merges": 'en-de "unbelievably sleepy"',
    "reference": f"{TEXT} --site decoder.layers.0.cross --query 6 --key 6",
    "schedule": "",
    "training": "dates-replay",
}
SENTENCES = {  # English, Korean
    "pattern": (
        "One head: rows are queries, columns are keys, the area of a circle is the weight.",
        "헤드 하나의 어텐션 패턴입니다. 행은 쿼리, 열은 키, 원의 넓이는 가중치입니다.",
    ),
    "lines": (
        "The same head as lines from each query to the keys it attends to.",
        "같은 헤드를 쿼리에서 키로 이은 선으로 그립니다.",
    ),
    "heads": ("All heads of a site.", "한 어텐션의 모든 헤드입니다."),
    "compare": (
        "Two heads, texts or models side by side, with the difference.",
        "두 헤드, 두 문장 또는 두 모델을 나란히 놓고 차이를 보여 줍니다.",
    ),
    "alignment": (
        "Which source words each word of the translation came from.",
        "번역문의 단어가 원문의 어느 단어에서 왔는지 보여 줍니다.",
    ),
    "stages": (
        "Scores, masked scores and weights: three stages of one table.",
        "점수, 마스크한 점수, 가중치. 한 표의 세 단계입니다.",
    ),
    "layer": (
        "The attention layer as boxes with shapes and values.",
        "어텐션 레이어를 크기와 값이 적힌 상자로 그립니다.",
    ),
    "split": (
        "How a vector is split into heads and joined again.",
        "벡터를 헤드로 나누고 다시 합치는 과정입니다.",
    ),
    "additive": (
        "Bahdanau's attention step by step, with the numbers of one decoder step.",
        "바다나우 어텐션을 디코더 한 단계의 실제 값으로 풉니다.",
    ),
    "steps": (
        "One query from the scores to the context, every number shown.",
        "쿼리 하나를 점수부터 문맥 벡터까지 모든 수와 함께 따라갑니다.",
    ),
    "bars": ("The weights of one query as bars.", "쿼리 하나의 가중치를 막대로 그립니다."),
    "temperature": (
        "The weights of one query at several temperatures; it can move.",
        "온도에 따라 달라지는 쿼리 하나의 가중치입니다. 움직이는 그림으로도 저장할 수 있습니다.",
    ),
    "reference": (
        "One word in all heads, sorted by the weight on another word.",
        "한 단어를 모든 헤드에서 보고, 다른 단어에 준 가중치 순으로 늘어놓습니다.",
    ),
    "graph": ("Tokens as nodes, large weights as edges.", "토큰은 노드, 큰 가중치는 간선입니다."),
    "space": (
        "Token vectors in the plane, and where attention moves them.",
        "평면에 놓은 토큰 벡터와 어텐션이 옮긴 자리입니다.",
    ),
    "image": (
        "Attention of a Vision Transformer on the image itself.",
        "비전 트랜스포머의 어텐션을 이미지 위에 그립니다.",
    ),
    "decode": (
        "The answer token by token, with what each token attended to; it can move.",
        "출력 토큰마다 그 토큰이 본 것을 함께 보여 줍니다. 움직이는 그림으로도 저장할 수 있습니다.",
    ),
    "lens": (
        "What the model would predict after each sub-layer.",
        "각 서브레이어에서 멈췄다면 무엇을 예측했을지 보여 줍니다(로짓 렌즈).",
    ),
    "attribution": (
        "Which head or feed-forward layer raised or lowered the logit of the answer.",
        "어떤 헤드와 피드포워드가 답의 로짓을 높이거나 낮췄는지 보여 줍니다(기여도).",
    ),
    "architecture": (
        "The architecture of a model or preset, with shapes.",
        "모델이나 프리셋의 구조와 크기입니다.",
    ),
    "merges": (
        "How a tokenizer joins letters into tokens, merge by merge.",
        "토크나이저가 글자를 합쳐 토큰을 만드는 과정입니다.",
    ),
    "training": (
        "The heads of a training run as they form; it can move (.gif, .webp, .mp4).",
        "학습하는 동안 생겨나는 헤드입니다. 움직이는 그림(.gif, .webp, .mp4)도 됩니다.",
    ),
    "scaling": (
        "Why scores are divided by √d_k: spread, entropy and gradient for growing d_k.",
        "점수를 √d_k로 나누는 이유: d_k에 따른 점수의 퍼짐, 엔트로피, 기울기입니다.",
    ),
    "cost": (
        "The paper's table of costs, measured on the machine that draws it.",
        "논문의 복잡도 표를, 그림을 그리는 컴퓨터에서 직접 측정합니다.",
    ),
    "efficient": (
        "Exact and efficient attention: n × n against k × c.",
        "표준 어텐션과 효율적인 어텐션: n × n과 k × c입니다.",
    ),
    "masks": ("Causal, padding and window masks.", "인과, 패딩, 윈도 마스크입니다."),
    "padding": ("A batch of texts of different lengths.", "길이가 다른 문장을 묶은 배치입니다."),
    "positions": ("Sinusoidal positions as a table.", "사인·코사인 위치 인코딩을 표로 그립니다."),
    "waves": ("Sinusoidal positions as curves.", "위치 인코딩을 곡선으로 그립니다."),
    "complexity": (
        "The paper's table of costs as curves.",
        "논문의 복잡도 표를 곡선으로 그립니다.",
    ),
    "schedule": (
        "The learning rate with warm-up.",
        "웜업이 있는 학습률 스케줄입니다.",
    ),
}
files: dict[str, bytes] = {}  # by path in the site


def gallery(language: str) -> str:
    """Draw every kind and show it below its command."""
    up = "../../" if language == "ko" else "../"
    parts = []
    for kind in KINDS:
        arguments = arguments_of(kind) + (" --language ko" if language == "ko" else "")
        name = f"figures/{file_name(kind, arguments)}.svg"
        files[name] = drawn(kind, arguments)
        sentence = SENTENCES.get(kind, ("", ""))[language == "ko"]
        command = " ".join(f"regard figure {kind} {arguments} -o {kind}.svg".split())
        image = figure_tag(f"{up}{name}", sentence)
        parts.append(f"## {kind}\n\n{sentence}\n\n```sh\n{command}\n```\n\n{image}\n")
    return "\n".join(parts)


def arguments_of(kind: str) -> str:
    """Return model, text and options of the example of a kind."""
    if kind in CONCEPT_KINDS:
        return ""
    return ARGUMENTS.get(kind, TEXT if kind in TRACE_KINDS else "")


def file_name(kind: str, arguments: str) -> str:
    """Return a name for the figure of a command."""
    return "-".join([kind, *filter(None, re.split(r"[^A-Za-z0-9_]+", arguments))])


def drawn(kind: str, arguments: str, extension: str = "svg") -> bytes:
    """Run the command and return the file that it writes."""
    words = shlex.split(arguments)
    words = [str(REPOSITORY / word) if word.endswith(".png") else word for word in words]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"figure.{extension}"
        done = CliRunner().invoke(app, ["figure", kind, *words, "-o", str(path)])
        if done.exit_code:
            raise RuntimeError(f"regard figure {kind} {arguments}: {done.output}")
        return path.read_bytes()
