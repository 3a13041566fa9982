"""Vision Transformers: an image is cut into patches, and an encoder reads each as a token.

Dosovitskiy et al. 2021, "An Image Is Worth 16x16 Words"; with a distillation token, Touvron et
al. 2021 (DeiT).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import InputError
from regard.layers.attention_forms import FORMS
from regard.layers.feed_forward import ACTIVATIONS, activation_function
from regard.layers.initialize import INITIALIZATIONS, initialize
from regard.layers.patch import STEMS, PatchEmbedding, PatchGrid, cut_grid
from regard.layers.stack import LayerPlan, Stack
from regard.models.config import ModelConfig, check_choice, check_counts, check_probabilities
from regard.models.summary import summarize
from regard.tap import tap

POOLS = ("class", "mean")
POOLERS = ("none", "tanh", "relu")
DISTILLATIONS = ("none", "token", "classifier")


@dataclass(frozen=True, kw_only=True)
class VisionConfig(ModelConfig):
    """What a vision Transformer is made of; the defaults are those of ViT base."""

    family: ClassVar[str] = "vision"

    n_classes: int | None = None
    """Without classes there is no classifier, and the model gives one vector for each image."""
    image_size: int = 224
    """Height and width for which positions are learned; other sizes are read by interpolation."""
    patch_size: int = 16
    n_channels: int = 3
    stem: str = "linear"
    """How a patch becomes a vector: by one product of its pixels, or by a few "convolution"s, which
    learn from less data."""
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    d_ff: int = 3072
    dropout: float = 0.0
    attention_dropout: float = 0.0
    norm_eps: float = 1e-12
    activation: str = "gelu"
    attention: str = "exact"
    attention_size: int | None = None
    """What a form other than exact is large by; see regard.layers.attention_forms."""
    pool: str = "class"
    """Which vector stands for the whole image: that of a class token, or the mean of all patches
    (then there is no class token)."""
    pooler: str = "none"
    """What it passes through: nothing, or a linear layer and tanh or relu."""
    d_pooler: int | None = None
    """Width of that layer; d_model unless given."""
    distillation: str = "none"
    """DeiT's second token: "none", read along ("token"), or with a classifier of its own
    ("classifier"), whose logits are averaged with the class token's."""
    initialization: str = "normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "n_classes", "image_size", "patch_size", "n_channels", "d_model")
        check_counts(self, "n_heads", "n_layers", "d_ff", "d_pooler")
        check_probabilities(self, "dropout", "attention_dropout")
        check_choice(self, "activation", ACTIVATIONS)
        check_choice(self, "attention", FORMS)
        check_choice(self, "stem", STEMS)
        check_choice(self, "pool", POOLS)
        check_choice(self, "pooler", POOLERS)
        check_choice(self, "distillation", DISTILLATIONS)
        check_choice(self, "initialization", INITIALIZATIONS)
        if self.image_size % self.patch_size:
            raise InputError(
                f"image_size is {self.image_size}, which patches of {self.patch_size} do not fill; "
                "choose a patch_size that divides it."
            )
        if self.d_model % self.n_heads:
            raise InputError(
                f"d_model is {self.d_model}, which {self.n_heads} heads cannot share evenly; "
                f"choose n_heads that divides {self.d_model}."
            )
        _check_distillation(self)

    @property
    def n_special(self) -> int:
        """How many tokens stand in front of the patches."""
        return (self.pool == "class") + (self.distillation != "none")

    def plan(self) -> LayerPlan:
        """The numbers from which the layers are made."""
        return LayerPlan(
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_ff=self.d_ff,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            norm="pre",
            norm_eps=self.norm_eps,
            activation=self.activation,
            form=self.attention,
            form_size=self.attention_size,
            n_positions=(self.image_size // self.patch_size) ** 2 + 2,
        )


def patch_grid(
    config: VisionConfig, height: int | None = None, width: int | None = None
) -> PatchGrid:
    """How token positions lie on an image of this size (of the model's own unless given)."""
    height = config.image_size if height is None else height
    width = config.image_size if width is None else width
    return cut_grid(height, width, config.patch_size, first=config.n_special)


class Vision(nn.Module):
    """images ── cut and embed ── encoder ──▶ states ── pool ── classify ──▶ logits of the classes

    Images are (channel, height, width), their pixels scaled as in training.
    """  # noqa: D415  a picture

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
        self.encoder = Stack(config.plan(), config.n_layers, path="encoder")
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

    def forward(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch class"]:
        """How well each class fits each image; one vector for each where there are no classes."""
        states = self.states(images)
        return self.pooled(states) if self.classifier is None else self.classify(states)

    def states(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch token d_model"]:
        """One vector for each token: the special ones first, then the patches row by row."""
        return self.encoder(self.embedding(images))

    def pooled(
        self, states: Float[Tensor, "batch token d_model"]
    ) -> Float[Tensor, "batch d_pooled"]:
        """One vector for each image."""
        vector = states[:, 0] if self.config.pool == "class" else states.mean(dim=1)
        if self.pooler is not None:
            vector = activation_function(self.config.pooler)(self.pooler(vector))
        return tap("output.pooled", vector, "d_pooled")

    def classify(
        self, states: Float[Tensor, "batch token d_model"]
    ) -> Float[Tensor, "batch class"]:
        """How well each class fits each image."""
        if self.classifier is None:
            raise InputError("this model cannot classify: it was made without n_classes.")
        logits = self.classifier(self.pooled(states))
        if self.distillation_classifier is not None:
            logits = torch.stack([logits, self.distillation_classifier(states[:, 1])]).mean(dim=0)
        return tap("output.classes", logits, "class")

    def __repr__(self) -> str:
        return str(summarize(self))


def _check_distillation(config: VisionConfig) -> None:
    if config.distillation != "none" and config.pool != "class":
        raise InputError(
            f"distillation is {config.distillation!r} with pool {config.pool!r}; the distillation "
            "token stands beside a class token: choose pool 'class'."
        )
    if config.distillation == "classifier" and config.n_classes is None:
        raise InputError("distillation is 'classifier', but there are no classes: give n_classes.")
