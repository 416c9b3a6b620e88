"""Which keys of a training go with ``shard_weights``, under which no process holds a weight as a whole."""

from __future__ import annotations

from wpriv.config.document import Key
from wpriv.config.train_schema import Optimizer, Privacy, Train

# keys that divided training takes with any value; others must have their default
KEYS = {
    Train: {
        "kind", "source", "task", "data", "model", "options", "privacy", "optimizer", "batch", "epochs", "steps",
        "seed", "physical", "memory", "shard_weights", "checkpoint", "accountants", "figure", "title", "expect",
        "claims", "time", "quick", "sweep", "seeds", "cluster",
    },
    Privacy: {
        "eps", "delta", "sigma", "accountant", "sampling", "adjacency", "group", "clip", "norm", "pairs", "method",
    },
    Optimizer: {"name", "lr", "momentum", "nesterov", "betas", "weight_decay", "decay"},
}  # fmt: skip


def fault(recipe: Train) -> tuple[Key, str] | None:
    """Return the first key that needs whole weights, and the message; None where the weights may be divided."""
    parts: list[tuple[Key, Train | Optimizer | Privacy]] = [((), recipe), (("optimizer",), recipe.optimizer)]
    private = recipe.privacy
    if private is not None:
        parts.append((("privacy",), private))
    keys = [
        (*path, key)
        for path, part in parts
        for key, field in type(part).model_fields.items()
        if key not in KEYS[type(part)] and getattr(part, key) != field.get_default(call_default_factory=True)
    ]
    if private is not None and private.clip == "batch-mean":
        keys.append(("privacy", "clip"))
    if private is not None and private.method not in ("auto", "ghost"):
        keys.append(("privacy", "method"))
    if not keys:
        return None
    name = ".".join(map(str, keys[0]))
    return keys[0], (
        f"shard_weights: the key {name} needs each weight as a whole. Leave it out, or train without shard_weights"
    )
