"""Vision Transformers: an image is cut into patches, which an encoder reads as tokens.

Dosovitskiy et al. 2021, "An Image Is Worth 16x16 Words"; with a distillation token, Touvron et
al. 2021 (DeiT).
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.layers.feed_forward import activation_function
from regard.layers.patch import STEMS, Images, PatchEmbedding, PatchGrid, cut_grid
from regard.layers.stack import INITIALIZATIONS, LayerConfig, Stack, initialize
from regard.models.config import POOLERS, ModelConfig, check_layers
from regard.models.summary import summarize
from regard.tap import tap

States: TypeAlias = Float[Tensor, "batch token d_model"]
POOLS = ("class", "mean")
DISTILLATIONS = ("none", "token", "classifier")


@dataclass(frozen=True, kw_only=True)
class VisionConfig(ModelConfig, LayerConfig):
    """Settings of a vision Transformer; the defaults are those of ViT base."""

    family: ClassVar[str] = "vision"

    n_classes: int | None = None
    """A model without classes has no classifier and returns one vector for each image."""
    image_size: int = 224
    """Height and width for which positions are learned; they are interpolated for other sizes."""
    patch_size: int = 16
    n_channels: int = 3
    stem: str = "linear"
    """The patch embedding: one "linear" layer, or a few "convolution"s, which need less data."""
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    d_ff: int = 3072
    activation_dropout: float | None = 0.0
    norm: str = "pre"
    norm_eps: float = 1e-12
    activation: str = "gelu"
    pool: str = "class"
    """The vector of the whole image: that of a class token, or the mean of all patches (such
    a model has no class token)."""
    pooler: str = "none"  # a linear layer on that vector with tanh or relu, or "none"
    d_pooler: int | None = None  # width of that layer; d_model by default
    distillation: str = "none"
    """DeiT's second token: "none", "token", or with a separate "classifier" whose logits are
    averaged with the class token's."""
    initialization: str = "normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self)
        self.check_counts("n_classes", "image_size", "patch_size", "n_channels")
        self.check_counts("n_layers", "d_pooler")
        check_choice("stem", self.stem, STEMS)
        check_choice("pool", self.pool, POOLS)
        check_choice("pooler", self.pooler, POOLERS)
        check_choice("distillation", self.distillation, DISTILLATIONS)
        check_choice("initialization", self.initialization, INITIALIZATIONS)
        if self.image_size % self.patch_size:
            raise InputError(
                f"image_size is {self.image_size}, which is not a multiple of patch_size "
                f"{self.patch_size}: choose a patch_size that divides it."
            )
        if self.distillation != "none" and self.pool != "class":
            raise InputError(
                f"distillation is {self.distillation!r} with pool {self.pool!r}, but the "
                "distillation token needs a class token: choose pool 'class'."
            )
        if self.distillation == "classifier" and self.n_classes is None:
            raise InputError("distillation is 'classifier' without classes: give n_classes.")

    @property
    def n_special(self) -> int:
        """Number of tokens in front of the patches."""
        return (self.pool == "class") + (self.distillation != "none")

    @property
    def n_tokens(self) -> int:
        return (self.image_size // self.patch_size) ** 2 + 2


def patch_grid(
    config: VisionConfig, height: int | None = None, width: int | None = None
) -> PatchGrid:
    """Return the patches of an image of this size; of the model's image_size by default."""
    height, width = (config.image_size if n is None else n for n in (height, width))
    return cut_grid(height, width, config.patch_size, first=config.n_special)


class Vision(nn.Module):
    """The vision Transformer.

    images ── cut and embed ── encoder ──▶ states ── pool ── classify ──▶ logits of the classes

    Images are (channel, height, width), their pixels scaled as in training.
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = PatchEmbedding(
            config.d_model,
            image_size=config.image_size,
            patch_size=config.patch_size,
            n_channels=config.n_channels,
            n_special=config.n_special,
            stem=config.stem,
            dropout=config.dropout,
            path="encoder.embedding",
        )
        self.encoder = Stack(config, config.n_layers, path="encoder")
        d_pooled, n_classes = config.d_model, config.n_classes
        self.pooler = self.classifier = self.distillation_classifier = None
        if config.pooler != "none":
            d_pooled = config.d_pooler or config.d_model
            self.pooler = nn.Linear(config.d_model, d_pooled)
        if n_classes is not None:
            self.classifier = nn.Linear(d_pooled, n_classes)
            if config.distillation == "classifier":
                self.distillation_classifier = nn.Linear(config.d_model, n_classes)
        initialize(self, config.initialization)

    def forward(self, images: Images) -> Float[Tensor, "batch class"]:
        """Return the logits of the classes, or one vector for each image without classes."""
        states = self.states(images)
        return self.pooled(states) if self.classifier is None else self.classify(states)

    def states(self, images: Images) -> States:
        """Return one vector for each token: special ones first, then the patches row by row."""
        return self.encoder(self.embedding(images))

    def pooled(self, states: States) -> Float[Tensor, "batch d_pooled"]:
        vector = states[:, 0] if self.config.pool == "class" else states.mean(dim=1)
        if self.pooler is not None:
            vector = activation_function(self.config.pooler)(self.pooler(vector))
        return tap("output.pooled", vector, "d_pooled")

    def classify(self, states: States) -> Float[Tensor, "batch class"]:
        if self.classifier is None:
            raise InputError("this model cannot classify because it was built without n_classes.")
        logits = self.classifier(self.pooled(states))
        if self.distillation_classifier is not None:
            logits = torch.stack([logits, self.distillation_classifier(states[:, 1])]).mean(dim=0)
        return tap("output.classes", logits, "class")

    def __repr__(self) -> str:
        return str(summarize(self))
