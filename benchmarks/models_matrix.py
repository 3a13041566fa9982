"""Watch many architectures with tiny random weights, and write docs/models.md.

`make models-matrix` runs it. Outputs are compared with those of the same model without regard, and
weights with the attentions that transformers' eager implementation returns.
"""

import platform
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

import regard
from regard.capabilities import family_markdown
from regard.errors import RegardError
from tests.trace.attention_styles import STYLES, Blocks
from tests.trace.tiny_models import BART, IMAGE, T5, TEXT, TINY, Tiny

BOUND = 1e-5
DECODERS = (
    "Mistral Mixtral Qwen2 Qwen2Moe Qwen3Moe Gemma Gemma2 Phi3 StableLm Starcoder2 Cohere Cohere2 "
    "Olmo Olmoe OPT Bloom GPTJ GPTBigCode CodeGen Falcon Granite GraniteMoe Nemotron Persimmon Glm "
    "Glm4 Olmo3 SmolLM3 Ernie4_5 Arcee Apertus Exaone4 DeepseekV3 Jais2 XGLM BioGpt Lfm2 Doge "
    "MiniMax Mamba"
)
ENCODERS = (
    "Bert DistilBert Albert XLMRoberta MPNet Deberta DebertaV2 Camembert Ernie RoFormer "
    "SqueezeBert "
    "Nystromformer FNet Longformer IBert LayoutLM MegatronBert RemBert RobertaPreLayerNorm "
    "Data2VecText Esm"
)
PAIRS = "Pegasus Blenderbot BlenderbotSmall PLBart MT5 UMT5 LongT5 SwitchTransformers"
IMAGES = "ViT DeiT Dinov2WithRegisters ViTMSN Data2VecVision Beit"


@dataclass(frozen=True)
class Row:
    """One architecture and what watching it gave."""

    name: str
    state: str
    """"exact", "without lens" or "refused"."""
    difference: str
    reason: str


class NanoGpt(nn.Module):
    """A small GPT in the way of nanoGPT: fused attention, pre-norm, tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(40, 16), nn.Embedding(32, 16)
        self.blocks = nn.ModuleList(NanoBlock() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 40, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class NanoBlock(nn.Module):
    """Attention and feed-forward, each with a norm before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.feed_forward = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(self.norms[0](x)).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(context.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norms[1](x))


def architectures() -> dict[str, Tiny]:
    """Return the models of transformers."""
    found = {tiny.model: tiny for tiny in TINY.values()}
    for name in DECODERS.split():
        tiny = Tiny(f"{name}ForCausalLM", f"{name}Config", {**TEXT, "num_key_value_heads": 4})
        found[tiny.model] = tiny
    for name in ENCODERS.split():
        found[f"{name}ForMaskedLM"] = Tiny(f"{name}ForMaskedLM", f"{name}Config", TEXT)
    for name in PAIRS.split():
        settings = T5 if "T5" in name or "Switch" in name else BART
        tiny = Tiny(f"{name}ForConditionalGeneration", f"{name}Config", settings, "pair")
        found[tiny.model] = tiny
    for name in IMAGES.split():
        tiny = Tiny(f"{name}ForImageClassification", f"{name}Config", IMAGE, "image")
        found[tiny.model] = tiny
    return found


def build(tiny: Tiny) -> nn.Module:
    """Build with torch's attention function, or with eager attention if it has no other."""
    try:
        return tiny.build("sdpa")
    except ValueError:
        return tiny.build("eager")


def eager_tables(tiny: Tiny, example: dict[str, Tensor]) -> list[Tensor]:
    """Return the attentions of the eager implementation in the order of computation."""
    output = tiny.build("eager")(**example, output_attentions=True)
    if tiny.inputs != "pair":
        return list(output.attentions or ())
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(one for pair in pairs for one in pair)]


def compare(trace: regard.Trace, tables: list[Tensor]) -> float | None:
    """Return the largest difference of weights; None if they do not correspond."""
    found = [trace[path].all_batches("weights") for path in trace]
    if len(found) != len(tables) or any(
        a.shape != b.shape for a, b in zip(found, tables, strict=True)
    ):
        return None
    return max(float((a - b).abs().max()) for a, b in zip(found, tables, strict=True))


@torch.no_grad()
def measure(name: str, tiny: Tiny) -> Row:
    """Watch one architecture of transformers."""
    try:
        model, example = build(tiny), tiny.example()
        expected = model(**example)[0]
    except Exception as error:
        return Row(name, "refused", "", f"not built: {str(error).splitlines()[0][:120]}")
    try:
        with regard.watch(model) as trace:
            trace.output = model(**example)[0]
    except RegardError as error:
        return Row(name, "refused", "", str(error))
    apart = float((trace.output - expected).abs().max())
    try:
        weights = compare(trace, eager_tables(tiny, example))
    except (TypeError, RuntimeError, AttributeError):  # no attentions to compare with
        weights = None
    shown = f"{apart:.0e}, " + ("not comparable" if weights is None else f"{weights:.0e}")
    if apart > BOUND or (weights or 0) > BOUND or trace.unwatched:
        return Row(name, "refused", shown, "; ".join(trace.unwatched) or "differs")
    row = _with_lens(name, trace, shown)
    if weights is None and row.state == "exact":
        return Row(name, "outputs equal", shown, "transformers returns no weights to compare with")
    return row


def _with_lens(name: str, trace: regard.Trace, shown: str) -> Row:
    try:
        trace.lens()
        trace.attribution(0, position=0)
    except RegardError as error:
        return Row(name, "without lens", shown, str(error))
    except Exception as error:
        print(name, repr(error))
        return Row(name, "without lens", shown, f"{type(error).__name__}")
    return Row(name, "exact", shown, "")


@torch.no_grad()
def measure_module(name: str, model: nn.Module, *inputs: Tensor) -> Row:
    """Watch a module that is not of transformers."""
    expected = model.eval()(*inputs)
    with regard.watch(model) as trace:
        trace.output = model(*inputs)
    apart = float((trace.output - expected).abs().max())
    state = _with_lens(name, trace, f"{apart:.0e}")
    return state if apart <= BOUND else Row(name, "refused", f"{apart:.0e}", "differs")


def modules() -> list[Row]:
    """Watch nn.Transformer, a nanoGPT, ten hand-written styles and image models."""
    torch.manual_seed(0)
    x, ids = torch.randn(2, 5, 16), torch.randint(0, 40, (2, 7))
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    pair = nn.Transformer(16, 4, 2, 2, 32, batch_first=True)
    rows = [
        measure_module(
            "nn.TransformerEncoder + nn.Linear", nn.Sequential(stack, nn.Linear(16, 9)), x
        ),
        measure_module("nn.Transformer", pair, x, torch.randn(2, 3, 16)),
        measure_module("a nanoGPT", NanoGpt(), ids),
    ]
    for style in STYLES:
        model = nn.Sequential(Blocks(style), nn.Linear(16, 9))
        rows.append(measure_module(f"by hand: {style.__name__}", model, x))
    return [*rows, *image_models()]


def _declare_operators() -> None:
    """Declare the operators of detection, which torchvision's wheel loads only next to CUDA."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    for name in ("nms", "qnms"):
        schema = "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
        torch.library.define(f"torchvision::{name}", schema)
    for name in [one for one in sys.modules if one.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


def image_models() -> list[Row]:
    """Watch models of torchvision and timm, which needs torchvision, if they are installed."""
    try:
        with suppress(RuntimeError):
            import torchvision  # noqa: F401
        _declare_operators()
        import timm
        from torchvision.models import SwinTransformer, VisionTransformer
    except (ImportError, RuntimeError) as error:
        return [Row("timm, torchvision", "refused", "", f"not installed here: {error}")]
    image = torch.randn(2, 3, 32, 32)
    vit = VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=5)
    nn.init.normal_(vit.heads.head.weight)  # torchvision starts it at 0
    swin = SwinTransformer([4, 4], 16, [2, 2], [2, 2], [4, 4], num_classes=5)
    rows = [
        measure_module("torchvision VisionTransformer", vit, image),
        measure_module("torchvision SwinTransformer", swin, image),
    ]
    sizes = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    for name in ("vit_tiny_patch16_224", "deit_tiny_patch16_224"):
        model = timm.create_model(name, **sizes)
        rows.append(measure_module(f"timm {name}", model, image))
    return rows


def main() -> None:
    """Measure everything and write docs/models.md."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    others = modules()
    rows = [measure(name, tiny) for name, tiny in sorted(architectures().items())]
    exact = sum(row.state == "exact" for row in rows)
    date = datetime.now(UTC).date()
    lines = [
        "# Architectures that were watched",
        "",
        "What works with which family (`regard models --families`):",
        "",
        family_markdown(),
        "",
        f"Written by `make models-matrix` on {date} ({platform.machine()}, CPU, torch "
        f"{torch.__version__}, transformers {transformers.__version__}, {_others()}). Tiny models "
        "with random weights, two texts or images, one padded. The numbers are the largest "
        "differences of outputs with and without regard, and of weights from transformers' eager "
        "attention. "
        "*Exact* means both are at most 1e-5, and lens and attribution work.",
        "",
        f"**{exact} of {len(rows)} architectures of transformers are exact.**",
        "",
        *_table(rows),
        "",
        "## Other modules",
        "",
        *_table(others),
        "",
    ]
    Path(__file__).parents[1].joinpath("docs/models.md").write_text("\n".join(lines))


def _others() -> str:
    """Say which of the optional packages were there, and in which version."""
    found = []
    for name in ("timm", "torchvision"):
        try:
            found.append(f"{name} {version(name)}")
            if name == "torchvision" and not hasattr(torch.ops.torchvision, "roi_align"):
                found[-1] += " without its compiled operators"
        except PackageNotFoundError:
            stands_in = find_spec(name) is not None
            found.append(f"empty modules in place of {name}" if stands_in else f"no {name}")
    return ", ".join(found)


def _table(rows: list[Row]) -> list[str]:
    head = ["| architecture | state | outputs, weights | reason |", "|---|---|---|---|"]
    return head + [
        f"| {row.name} | {row.state} | {row.difference} | {row.reason.replace('|', '/')} |"
        for row in rows
    ]


if __name__ == "__main__":
    main()
