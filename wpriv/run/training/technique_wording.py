"""Statement texts on techniques of training: automatic and adaptive clipping, augmentation, averages of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wpriv.config.technique_schema import STABILITY
from wpriv.config.train_schema import Train
from wpriv.numerics.count_noise import default_count_noise, gradient_multiplier
from wpriv.run.training.plan import Plan

AUGMENTED = (
    "augmentation: the copies of a record are made from that record alone, by random numbers that depend on no record, "
    "and their mean gradient is clipped as one: a record moves the sum by no more than without copies"
)
AVERAGED = (
    "the averaged weights: computed from the weights after each step, which are made of noisy releases "
    "(post-processing)"
)
ADAPTED = (
    "the clipping norms: each is computed from the counts of the steps before it, which are released with noise in the "
    "same releases as the gradients and are part of the same figures"
)


INITIAL = (
    "the weights that the training began from, {source}, which are taken as public: nothing here covers what they show "
    "of the records that they were trained on, and those must not be the records of this training"
)
DECLARED = {
    "public": "; the recipe declares those records public",
    "other": "; the recipe declares that they were none of these records",
    None: "",
}
CALLER = (
    "what the calling program computed from the records by itself, for example from the batches of a loop of its own: "
    "figures, and learning rates, losses or settings that were chosen by them; and what the first weights show of "
    "these records because another program trained them"
)


def not_covered(train: Train) -> list[str]:
    """Return the statement's lines on what a training began from, and on what the program that called it does."""
    if train.init is not None:
        digest = f" (SHA-256 {train.init.sha256})" if train.init.sha256 is not None else ""
        source = f"those in {Path(train.init.file).name}{digest}"
        return [INITIAL.format(source=source) + DECLARED[train.init.records]]
    given = INITIAL.format(source="those of the network that the calling program gave")
    return [given, CALLER] if _is_given(train) else []


def _is_given(train: Train) -> bool:
    return train.model.name == "given"


def clipping(plan: Plan) -> dict[str, Any]:
    """Return the entries of a statement's ``noise`` on a rule of clipping other than a fixed norm; {} for a norm."""
    private = plan.private
    if private is None or plan.release is None:
        return {}
    if private.clip == "automatic":
        return {"rule": "automatic", "stability": private.stability or STABILITY}
    if private.adapt is None:
        return {}
    count = private.adapt.count_noise or default_count_noise(plan.batch)
    return {
        "rule": "adaptive",
        "quantile": private.adapt.quantile,
        "rate": private.adapt.rate,
        "count_standard_deviation": count,
        "gradient_multiplier": gradient_multiplier(plan.multiplier, count, plan.adjacency),
    }


def covered(train: Train) -> list[str]:
    """Return the statement's lines on what the techniques of a recipe compute, which the guarantee covers."""
    lines = [AUGMENTED] if train.augment is not None else []
    lines += [ADAPTED] if train.privacy is not None and train.privacy.adapt is not None else []
    return lines + ([AVERAGED] if train.average is not None else [])
