"""The published networks, one class each: its fields are the parameters of the model, and ``build`` makes the layers.

A class is a plug-in by itself (``SOURCE``, ``Params`` and ``build``), since its instances are its parameters.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from wpriv.core.parameters import PluginClass, parameter
from wpriv.errors import MissingResource, UsageError

if TYPE_CHECKING:
    from torch import nn

    from wpriv.training.models._layers import Autoencoder, Generator


MAX_WIDTH = 10**6


@dataclass(frozen=True)
class Network(PluginClass):
    """Base of the networks."""

    SOURCE: ClassVar[str]

    def channels(self, shape: Sequence[int], side: int | None = None) -> int:
        """Return the number of channels of images [C, H, W], ``side`` pixels wide and high where it is given."""
        if len(shape) != 3 or min(shape) < 1 or (side is not None and tuple(shape[1:]) != (side, side)):
            expected = "[C, H, W]" if side is None else f"[C, {side}, {side}]"
            raise UsageError(
                f"{self.name} takes images of shape {expected}; found examples of shape {list(shape)}. "
                "Choose another model or data set"
            )
        return shape[0]


def parse_widths(name: str, text: str) -> list[int]:
    """Return the units of hidden layers, which users write as ``128-64-64``."""
    parts = text.split("-")
    if not all(part.isdecimal() and 1 <= int(part) <= MAX_WIDTH for part in parts):
        raise UsageError(
            f"{name}: widths must be whole numbers separated by dashes, as in 128-64-64; found {text[:40]!r}"
        )
    return [int(part) for part in parts]


@dataclass(frozen=True)
class AdaptCnn28(Network):
    """Network of Rakotomamonjy, Ralaivola (2021) for domain adaptation of digits: 320 features and a classifier."""

    name = "adapt-cnn-28"
    SOURCE = "Rakotomamonjy, Ralaivola 2021, appendix 8.5.2, digits"
    dropout: bool = parameter(
        "drop half of the second layer's channels and of the classifier's units, as published", default=False
    )

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, 28, 28] to logits [N, classes], by ``features`` (to [N, 320] in [0, 1]) and ``classifier``.

        49,962 parameters for one channel and ten classes.
        """
        from torch import nn

        features = nn.Sequential(
            *(nn.Conv2d(self.channels(shape, 28), 32, 5), nn.MaxPool2d(2), nn.ReLU()),  # to 12 x 12
            nn.Conv2d(32, 20, 5),
            *([nn.Dropout2d()] if self.dropout else []),
            *(nn.MaxPool2d(2), nn.Sigmoid(), nn.Flatten()),  # to 4 x 4
        )
        dropout = [nn.Dropout()] if self.dropout else []
        classifier = nn.Sequential(nn.Linear(20 * 4 * 4, 100), nn.ReLU(), *dropout, nn.Linear(100, classes))
        return nn.Sequential(OrderedDict(features=features, classifier=classifier))


@dataclass(frozen=True)
class AdaptMlp(Network):
    """Networks of Rakotomamonjy and Ralaivola (2021) for domain adaptation between extracted features."""

    name = "adapt-mlp"
    SOURCE = "Rakotomamonjy, Ralaivola 2021, appendix 8.5.2, Office 31 and VisDA"
    hidden: int = parameter("units of the first layer", default=100, minimum=1)
    width: int = parameter("features that are compared and classified (100 for VisDA)", default=50, minimum=1)
    relu: bool = parameter("a ReLU behind the features (VisDA)", default=False)
    dropout: bool = parameter("drop half of the classifier's hidden units in training, as published", default=False)

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, *shape] to logits [N, classes], by ``features`` (to [N, width]) and ``classifier``.

        88,210 parameters for 800 inputs and ten classes. The default widths are those for Office 31.
        """
        from torch import nn

        first = (nn.Flatten(), nn.Linear(math.prod(shape), self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.width))
        features = nn.Sequential(*first, *([nn.ReLU()] if self.relu else []))
        hidden = (nn.Linear(self.width, self.width), nn.ReLU(), *([nn.Dropout()] if self.dropout else []))
        classifier = nn.Sequential(*hidden, nn.Linear(self.width, classes))
        return nn.Sequential(OrderedDict(features=features, classifier=classifier))


@dataclass(frozen=True)
class AutoencoderNetwork(Network):
    """Autoencoder of fully connected layers: an encoder to codes, and a decoder back."""

    name = "autoencoder"
    SOURCE = "autoencoder of fully connected layers, as in Rodriguez-Vitores, Lalanne, Loubes 2025, Appendix B.3"
    code: int = parameter("numbers of a code", default=2, minimum=1)
    widths: str = parameter("units of the encoder's hidden layers, as 256-64", default="62")
    activation: str = parameter("relu or tanh", default="relu", choices=("relu", "tanh"))
    output: str = parameter("linear, or sigmoid for images in [0, 1]", default="linear", choices=("linear", "sigmoid"))
    ball: float = parameter(
        "codes become c / sqrt(1 + |c|^2 / ball^2), in a ball of this radius; 0 leaves them", default=0.0, minimum=0
    )
    prior: float = parameter(
        "a public guess of the outputs' mean, with which a sigmoid begins; 0 leaves it", default=0.0, minimum=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior and (self.output != "sigmoid" or self.prior >= 1):
            raise UsageError(
                f"{self.name}: prior, the mean of sigmoid outputs, must lie between 0 and 1 and needs output: sigmoid; "
                f"found prior: {self.prior:g} and output: {self.output}"
            )

    def build(self, shape: Sequence[int], classes: int) -> Autoencoder:
        """Map [N, *shape] to codes [N, code] and reconstructions [N, *shape]; ``classes`` is not used.

        The decoder has the layers of the encoder in reverse order. 2,374 parameters by default on 16 columns
        (16-62-2-62-16).
        """
        from wpriv.training.models._layers import Autoencoder

        sizes = [math.prod(shape), *parse_widths(self.name, self.widths), self.code]
        bounded = self.output == "sigmoid"
        return Autoencoder(shape, sizes, activation=self.activation, sigmoid=bounded, ball=self.ball, prior=self.prior)


@dataclass(frozen=True)
class CelebaGenerator(Network):
    """Generator of 64x64 colour images, used with private sliced Wasserstein distances on CelebA."""

    name = "celeba-generator"
    SOURCE = "Rakotomamonjy, Ralaivola 2021, Table 5"
    latent: int = parameter("normal numbers", default=32, minimum=1)

    def build(self, shape: Sequence[int], classes: int) -> Generator:
        """Map [N, latent] to [N, C, 64, 64] in [0, 1], without classes; 3,020,617 parameters for three channels.

        The first layer gives 4 x 4 cells and each of the four others doubles the side. Their stride is 2: with the
        stride of 1 that Table 5 prints, the images would have 16 x 16 pixels instead of the 64 x 64 that the table
        names.
        """
        from torch import nn

        from wpriv.training.models._layers import Generator, ToUnitInterval

        channels, widths = self.channels(shape, 64), (512, 256, 128, 64)
        layers: list[nn.Module] = [nn.Unflatten(1, (self.latent, 1, 1)), nn.ConvTranspose2d(self.latent, widths[0], 4)]
        for width, next_width in zip(widths, (*widths[1:], channels), strict=True):
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, next_width, 4, stride=2, padding=1)]
        return Generator(self.latent, 0, nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.Tanh(), ToUnitInterval()))


@dataclass(frozen=True)
class _Cnn(Network):
    """Two convolutions of 64 channels, each with its normalisation, and three linear layers."""

    norm: str = parameter(
        "group, or paper: BatchNorm as published, which mixes examples", default="group", choices=("group", "paper")
    )
    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)

    def _network(
        self, shape: Sequence[int], classes: int, *, side: int, hidden: tuple[int, int], activation: str
    ) -> nn.Module:
        """The network for images of a side; ``hidden`` are the units of its linear layers."""
        from torch import nn

        from wpriv.training.models._layers import ACTIVATIONS, group_norm

        channels, act = self.channels(shape, side), ACTIVATIONS[activation]
        # BatchNorm, as published, mixes examples, which per-example clipping cannot bound
        published = self.norm == "paper"
        norms = [nn.BatchNorm2d(64) if published else group_norm(self.name, 64, self.groups) for _ in range(2)]
        cells = ((side - 4) // 2 - 4) // 2  # a side, after two convolutions with 5 x 5 pixels and two poolings
        return nn.Sequential(
            *(nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2), norms[0]),
            *(nn.Conv2d(64, 64, 5), nn.ReLU(), norms[1], nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(64 * cells**2, hidden[0]), act(), nn.Linear(*hidden), act(), nn.Linear(hidden[1], classes)),
        )


@dataclass(frozen=True)
class ColourCnn(_Cnn):
    """Convolutional network of Yang, Qi and Zhou (2024) for 32x32 colour images."""

    name = "colour-cnn"
    SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for CIFAR-10 and SVHN"

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, 32, 32] to logits [N, classes].

        874,058 parameters for three channels and ten classes, with either normalisation.
        """
        return self._network(shape, classes, side=32, hidden=(384, 384), activation="relu")


@dataclass(frozen=True)
class GreyCnn(_Cnn):
    """Convolutional network of Yang, Qi and Zhou (2024) for 28x28 images."""

    name = "grey-cnn"
    SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for MNIST and Fashion-MNIST"

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, 28, 28] to logits [N, classes].

        573,834 parameters for one channel and ten classes, with either normalisation. As in the paper, the first
        normalisation follows its pooling and the second precedes it.
        """
        return self._network(shape, classes, side=28, hidden=(384, 192), activation="selu")


@dataclass(frozen=True)
class Critic28(Network):
    """Critic of a Wasserstein GAN for 28x28 images: one number for each image."""

    name = "critic-28"
    SOURCE = (
        "Radford, Metz, Chintala 2015, without normalisation, as Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville 2017 "
        "ask of a critic"
    )
    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, minimum=1)

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, 28, 28] to [N, classes]; 138,561 parameters for one channel and one output, the critic of a GAN.

        Images are processed independently, as the gradient penalty on the slope at each image requires.
        """
        from torch import nn

        channels, width = self.channels(shape, 28), self.width
        return nn.Sequential(
            *(nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)),  # to 14 x 14
            *(nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()),  # to 7 x 7
            nn.Linear(2 * width * 7 * 7, classes),
        )


@dataclass(frozen=True)
class Dcgan28(Network):
    """Generator of a DCGAN for 28x28 images: latents of a simple distribution in, images out."""

    name = "dcgan-28"
    SOURCE = "Radford, Metz, Chintala 2015, with two steps of upsampling for 28x28 images"
    latent: int = parameter("numbers that go in", default=100, minimum=1)
    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, minimum=1)
    norm: str = parameter(
        "batch, as published, mixes the images of a batch; or none", default="batch", choices=("batch", "none")
    )

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, latent] to [N, C, 28, 28] in [0, 1]; 772,752 parameters by default on one channel.

        Ignores ``classes``. Each unit of the first layer is normalised by itself (not each channel), and each pixel has
        an offset of its own. Otherwise the network first learns the mean image, at the expense of the differences
        between images.
        """
        from torch import nn

        from wpriv.training.models._layers import OutputOffset

        channels, width, bias = self.channels(shape, 28), self.width, self.norm == "none"
        norms = (nn.Identity(), nn.Identity()) if bias else (nn.BatchNorm1d(2 * width * 49), nn.BatchNorm2d(width))
        model = nn.Sequential(
            *(nn.Linear(self.latent, 2 * width * 49, bias=bias), norms[0], nn.ReLU()),
            nn.Unflatten(1, (2 * width, 7, 7)),
            *(nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=bias), norms[1], nn.ReLU()),  # to 14 x 14
            nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False),  # to 28 x 28
            OutputOffset((channels, 28, 28), bounded=True),
        )
        for layer in model.modules():
            if isinstance(layer, nn.ConvTranspose2d):
                nn.init.normal_(layer.weight, 0.0, 0.02)
        return model


@dataclass(frozen=True)
class Given(Network):
    """The network that was passed to ``wpriv.train`` in Python; a recipe cannot build it."""

    name = "given"
    SOURCE = "a network passed to wpriv.train in Python"
    architecture: str = parameter("name of the class and digest of the layers, as repr prints them", default="")
    loss: str = parameter("name and digest of the loss", default="")
    optimizer: str = parameter("name and digest of the optimizer of torch", default="")
    scheduler: str = parameter("name and digest of its schedule", default="")

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Refuse: only the Python program that has the network can train it."""
        raise UsageError(
            "this recipe trains a network that was passed to wpriv.train in Python, and only that program has it. Run "
            "it again, or put the class into a file and write model: {file: net.py, name: Net}"
        )


@dataclass(frozen=True)
class Gpt2(Network):
    """GPT-2 of any size, from a configuration and at random weights: nothing is downloaded."""

    name = "gpt2"
    SOURCE = "Radford, Wu, Child, Luan, Amodei, Sutskever 2019, as in transformers"
    width: int = parameter("numbers that stand for a token, a multiple of the heads", default=96, minimum=1)
    depth: int = parameter("number of blocks", default=2, minimum=1)
    heads: int = parameter("heads of attention in each block", default=4, minimum=1)

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map tokens [N, T] below ``classes`` to logits [N, T, classes]; no dropout.

        By default, 96 tokens and T = 63 it has 239,328 parameters. Their names are those of
        ``GPT2LMHeadModel``, which loads them.

        Raises:
            MissingResource: transformers is not installed.
            UsageError: the records are no sequences, or the width is no multiple of the heads.
        """
        try:
            from wpriv.training.models._gpt2_logits import Gpt2Logits
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            raise MissingResource(
                "the model gpt2 needs the package transformers; install it by pip install 'wpriv[llm]'"
            ) from None
        if len(shape) != 1:
            raise UsageError(f"gpt2 takes tokens [N, T]; found records of shape {list(shape)}. Choose another model")
        if self.width % self.heads:
            raise UsageError(f"gpt2: width must be a multiple of heads; found {self.width} and {self.heads}")
        return Gpt2Logits.of_sizes(classes, shape[0], self.width, self.depth, self.heads)


@dataclass(frozen=True)
class Logistic(Network):
    """Multinomial logistic regression: one linear layer."""

    name = "logistic"
    SOURCE = "logistic regression"

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, *shape] to logits [N, classes]; (inputs + 1) x classes parameters."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


@dataclass(frozen=True)
class MerfGenerator(Network):
    """Generator of DP-MERF for labelled 28x28 images, also used with private sliced Wasserstein distances."""

    name = "merf-generator"
    SOURCE = "Harder, Adamczewski, Park 2021; Rakotomamonjy, Ralaivola 2021, Table 3"
    latent: int = parameter("normal numbers beside the one-hot class", default=10, minimum=1)

    def build(self, shape: Sequence[int], classes: int) -> Generator:
        """Map [N, latent + classes] to [N, C, 28, 28] in [0, 1]; 167,161 parameters for one channel and ten classes.

        Batch normalisation mixes generated images only: no record passes through the generator.
        """
        import torch
        from torch import nn

        from wpriv.training.models._layers import Generator

        channels = self.channels(shape, 28)
        body = nn.Sequential(
            *(nn.Linear(self.latent + classes, 200), nn.BatchNorm1d(200), nn.ReLU()),
            *(nn.Linear(200, 784), nn.BatchNorm1d(784), nn.Unflatten(1, (16, 7, 7))),
            *(nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(16, 8, 5, padding=2), nn.ReLU()),  # to 14 x 14
            # to 28 x 28
            *(nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(8, channels, 5, padding=2), nn.Sigmoid()),
        )
        # convolutions of few channels take half the time in this memory format
        return Generator(self.latent, classes, body.to(memory_format=torch.channels_last))  # type: ignore[call-overload]


@dataclass(frozen=True)
class MlpGenerator(Network):
    """Generator of fully connected layers, from latents to records; an affine map without hidden layers."""

    name = "mlp-generator"
    SOURCE = "multilayer perceptron, as a generator"
    latent: int = parameter("numbers that go in", default=2, minimum=1)
    width: int = parameter("units of each hidden layer", default=128, minimum=1)
    depth: int = parameter("number of hidden layers; 0 is an affine map", default=2, minimum=0)
    activation: str = parameter("relu or tanh", default="relu", choices=("relu", "tanh"))
    norm: str = parameter(
        "batch: the hidden units are normalised over a batch; or none", default="none", choices=("batch", "none")
    )
    out: str = parameter("linear, or sigmoid for numbers from 0 to 1", default="linear", choices=("linear", "sigmoid"))

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, latent] to [N, *shape]; ``classes`` is ignored.

        118,032 parameters by default on 28x28 images (2-128-128-784).
        """
        from torch import nn

        from wpriv.training.models._layers import ACTIVATIONS, OutputOffset

        layers: list[nn.Module] = []
        size = self.latent
        for _ in range(self.depth):
            norm = [nn.BatchNorm1d(self.width)] * (self.norm == "batch")
            layers += [nn.Linear(size, self.width), *norm, ACTIVATIONS[self.activation]()]
            size = self.width
        layers += [nn.Linear(size, math.prod(shape), bias=False), nn.Unflatten(1, tuple(shape))]
        return nn.Sequential(*layers, OutputOffset(shape, bounded=self.out == "sigmoid"))


@dataclass(frozen=True)
class TanhCnn28(Network):
    """Small convolutional network with tanh, the reference for DP-SGD on MNIST and Fashion-MNIST."""

    name = "tanh-cnn-28"
    SOURCE = "Papernot, Thakurta, Song, Chien, Erlingsson 2021, Table 1; Tramer, Boneh 2021"

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, 28, 28] to logits [N, classes]; 26,010 parameters for one channel and ten classes.

        Bounded activations keep the gradient norms of examples close to each other, so that clipping removes less of
        them.
        """
        from torch import nn

        return nn.Sequential(
            nn.Conv2d(self.channels(shape, 28), 16, 8, stride=2, padding=3),  # to 14 x 14
            *(nn.Tanh(), nn.MaxPool2d(2, stride=1)),  # to 13 x 13
            nn.Conv2d(16, 32, 4, stride=2),  # to 5 x 5
            *(nn.Tanh(), nn.MaxPool2d(2, stride=1), nn.Flatten()),  # to 4 x 4
            *(nn.Linear(32 * 4 * 4, 32), nn.Tanh(), nn.Linear(32, classes)),
        )


@dataclass(frozen=True)
class TanhCnn32(Network):
    """Convolutional network with tanh, the reference for DP-SGD on CIFAR-10."""

    name = "tanh-cnn-32"
    SOURCE = "Papernot, Thakurta, Song, Chien, Erlingsson 2021, Table 2; Tramer, Boneh 2021"

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, 32, 32] to logits [N, classes]; 550,570 parameters for three channels and ten classes.

        Three times two 3x3 convolutions (32, 64 and 128 channels) and a max pooling, then one hidden layer of 128
        units.
        """
        from torch import nn

        size = self.channels(shape, 32)
        layers: list[nn.Module] = []
        for width in (32, 64, 128):
            for _ in range(2):
                layers += [nn.Conv2d(size, width, 3, padding=1), nn.Tanh()]
                size = width
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size * 4 * 4, 128), nn.Tanh(), nn.Linear(128, classes))


@dataclass(frozen=True)
class WideResnet(Network):
    """Wide residual network, 16 layers deep and 4 times as wide, with group instead of batch normalisation."""

    name = "wrn-16-4"
    SOURCE = "Zagoruyko, Komodakis 2016; with GroupNorm as De, Berrada, Hayes, Smith, Balle 2022"
    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)

    def build(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Map [N, C, H, W] to logits [N, classes]; 2,748,890 parameters for three channels and ten classes.

        Three stages of two blocks of two convolutions, and four more layers; no dropout.
        """
        from torch import nn

        from wpriv.training.models._layers import ResidualBlock, group_norm

        size = 16
        layers: list[nn.Module] = [nn.Conv2d(self.channels(shape), size, 3, padding=1, bias=False)]
        for stage, width in enumerate((64, 128, 256)):
            for block in range(2):
                layers.append(ResidualBlock(self.name, self.groups, size, width, 2 if stage and not block else 1))
                size = width
        last = (group_norm(self.name, size, self.groups), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(*layers, *last, nn.Linear(size, classes))


DECLARED: dict[str, type[Network]] = {
    network.name: network
    for network in (
        *(AdaptCnn28, AdaptMlp, AutoencoderNetwork, CelebaGenerator, ColourCnn, Critic28, Dcgan28, Given, Gpt2),
        *(GreyCnn, Logistic, MerfGenerator, MlpGenerator, TanhCnn28, TanhCnn32, WideResnet),
    )
}
