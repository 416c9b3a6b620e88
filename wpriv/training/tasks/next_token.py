"""A language model: each token of a record is predicted from those before it, measured by the perplexity of a token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wpriv.config.field_types import StrictModel
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.training import models
from wpriv.training.tasks import TaskSpec, _supervised

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wpriv.training.data import Data
    from wpriv.training.engine.job import Job


class Options(StrictModel):
    """Keys under ``options`` of a recipe: none."""


def build_job(recipe: Train, data: Data, device: torch.device, *, adjacency: str) -> Job:
    """Build the model of a recipe on records of tokens [N, T + 1]: T inputs, and the T tokens that follow them."""
    import torch

    if not data.vocabulary or data.shape[0] < 2:
        raise UsageError(
            f"the task next-token takes records of at least two tokens, [N, T]; found {data.x_train.dtype} "
            f"{list(data.x_train.shape)}. Take data: {{name: text, file: ...}}, or declare tokens of arrays"
        )
    train, test = (torch.tensor(x, device=device) for x in (data.x_train, data.x_test))
    network = models.build(recipe.model, (data.shape[0] - 1,), data.vocabulary).to(device)
    job = _supervised.build_job(
        recipe,
        network,
        loss,
        (train[:, :-1].contiguous(), train[:, 1:].contiguous()),
        (test[:, :-1].contiguous(), test[:, 1:].contiguous()),
        classes=data.vocabulary,
        adjacency=adjacency,
        vocabulary=data.vocabulary,
        measure=lambda logits, tokens: {"test_loss": loss(logits, tokens).sum()},
    )

    def evaluate() -> dict[str, float]:
        means = job.evaluate()
        return {"perplexity": math.exp(min(means["test_loss"], 700.0)), **means}

    return replace(job, evaluate=evaluate)


def loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the losses [B] of records: the mean cross-entropy of their tokens [B, T] under logits [B, T, V]."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.transpose(1, 2), tokens, reduction="none").mean(dim=1)


def remarks(recipe: Train, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return what the statement says of the unit that is protected."""
    if recipe.privacy is None:
        return ()
    return (
        "A record is one sequence of tokens. A document that was cut into several records is protected as a group of "
        "that many, which costs more than the eps of one record",
    )


TASK = TaskSpec(
    options=Options,
    results=("perplexity", "test_loss", "loss"),
    build_job=build_job,
    test_metrics=("perplexity", "test_loss"),
    release=_supervised.release,
    supports_exact_noise=_supervised.supports_exact_noise,
    remarks=remarks,
    clips_single_records=True,
    accepts_tokens=True,
)
