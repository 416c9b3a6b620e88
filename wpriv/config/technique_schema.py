"""The schema of techniques of private training: augmentation, averages, early stopping, adaptive norms, fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from wpriv.config.document import Key
from wpriv.config.field_types import Count, Positive, StrictModel, Word, key, optional

MAX_COPIES = 64
STABILITY = 0.01
"""The stability constant of automatic clipping in Bu et al. (2023)."""
AVERAGE_PREFIX = "average_"
"""Before the names of figures that are measured with the averaged weights."""


class Augment(StrictModel):
    """Augmentation multiplicity: a record's gradient is the mean over copies, changed as images or by other draws."""

    copies: Annotated[int, Field(ge=1, le=MAX_COPIES)] = key(
        "number of copies of a record in each step; their mean gradient is clipped, at no cost in privacy"
    )
    flip: Literal["none", "horizontal", "vertical", "both"] = key(
        "directions in which a copy is mirrored, each with probability 1/2", "none"
    )
    shift: Annotated[int, Field(ge=0, le=1024)] = key(
        "largest number of pixels by which a copy is moved in each direction (padding, then a crop)", 0
    )
    fill: Literal["zeros", "reflect", "edge"] = key(
        "what stands beyond the border of a moved image: zeros, its reflection, or its last pixels", "zeros"
    )


class Average(StrictModel):
    """An exponential moving average of the weights, which is released beside the last weights."""

    decay: Annotated[float, Field(gt=0, lt=1)] = key(
        "share of the average that a step keeps; the weights after the step have the remaining share", 0.999
    )
    ramp: bool = key("keep only (1 + t) / (10 + t) after step t where that is less, so that early weights fade", True)


class EarlyStop(StrictModel):
    """End the training where a figure of the test records does not get better any more."""

    records: Literal["public", "private"] | None = optional(
        "public: the test records are declared public, and looks at them cost nothing. private: a look is the number "
        "of them that the network gets right, with noise. Needed with privacy"
    )
    metric: Literal["accuracy", "test_loss", "perplexity"] | None = optional(
        "the figure of public records (default: accuracy, or test_loss where there is none); of private ones accuracy"
    )
    patience: Count = key("looks in a row without a better figure after which the training ends", 3)
    every: Count | None = optional("steps between two looks (default: those of an epoch)")
    least: Annotated[float, Field(ge=0, allow_inf_nan=False)] = key("by how much a better figure is better", 0.0)
    eps: Positive | None = optional(
        "what all looks at private records together cost each of them, at privacy.delta (default: privacy.eps)"
    )

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.records != "private" and self.eps is not None:
            yield ("eps",), "eps is the cost of looks at private records (records: private); leave it out"
        if self.records == "private" and self.metric not in (None, "accuracy"):
            yield ("metric",), f"private records are looked at by accuracy; found {self.metric}. Leave it out"


class Adapt(StrictModel):
    """A clipping norm that follows a quantile of the gradients' norms, by noisy counts that are accounted for."""

    quantile: Annotated[float, Field(gt=0, lt=1)] = key(
        "share of the gradients that should be no longer than the clipping norm", 0.5
    )
    rate: Positive = key("step of the logarithm of the norm for each unit of difference between the two shares", 0.2)
    count_noise: Positive | None = optional(
        "standard deviation of the noise on the number of such gradients, in records; by default a "
        "twentieth of the batch"
    )
    smallest: Positive = key("the norm never falls below this", 1e-6)
    largest: Positive = key("the norm never rises above this", 1e6)

    @model_validator(mode="after")
    def _ordered(self) -> Adapt:
        if self.smallest >= self.largest:
            raise ValueError(f"smallest must be below largest; found {self.smallest:g} and {self.largest:g}")
        return self


Patterns = Annotated[
    list[Word], BeforeValidator(lambda value: [value] if isinstance(value, str) else value), Field(min_length=1)
]
"""Names of parameters or layers, in which ``*`` stands for any characters; one word is a list of one."""


class Weights(StrictModel):
    """A file of weights from which a network begins, which are taken as public."""

    file: Word = key("a file in the safetensors format, or a state_dict or model.pt of torch")
    sha256: Word | None = optional("the digest of the file; another file is refused")
    recipe: Word | None = optional(
        "a recipe without privacy that writes the file into its folder; it is trained first where there is no file"
    )
    skip: Patterns | None = optional(
        "parameters that begin at random all the same, such as those of a new last layer: head.*"
    )
    records: Literal["public", "other"] | None = optional(
        "what is declared of the records behind the weights: that they are public, or other ones than "
        "those of this training; a training with privacy needs public for weights that wpriv trained without, and one "
        "of both for weights that it trained with privacy"
    )


def _weights(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


Init = Annotated[Weights | None, BeforeValidator(_weights, json_schema_input_type=Weights | str)]


class LowRank(StrictModel):
    """Low-rank adaptation: linear layers are frozen, and a product of two small matrices is trained beside each."""

    rank: Count = key("the smaller dimension of both matrices")
    alpha: Positive | None = optional("the product is multiplied by alpha / rank; by default by 1")
    layers: Patterns = key("the linear layers that are adapted, by name", ["*"])
