"""Begin a training from weights in a file, freeze parameters, and adapt linear layers by low-rank matrices.

Source:
    Hu et al. (2022), "LoRA: Low-Rank Adaptation of Large Language Models"; Yu et al. (2022), "Differentially Private
    Fine-tuning of Language Models", on training it privately.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import math
import pickle
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.config.train_parts import LowRank, Weights
from wpriv.config.train_schema import Train
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files import checkpoint, durable_writes
from wpriv.hints import did_you_mean
from wpriv.results.storage import ADAPTER
from wpriv.training.engine import saved_weights

# the number of names that a remark has
SHOWN = 6


@dataclass(frozen=True)
class StoredWeights:
    """The content of a file of weights.

    Attributes:
        tensors: by name. without_privacy: the file says that wpriv trained them without noise on clear records.
        with_privacy: it says that wpriv trained them with privacy.
    """

    tensors: dict[str, Tensor]
    without_privacy: bool
    with_privacy: bool = False


class AdaptedLinear(nn.Module):
    """A frozen linear layer and a trained change of some rank: base(x) + scale lora_B(lora_A(x)), at first base(x).

    The base is nn.Linear, or Conv1D of transformers, a linear layer whose weight is transposed. The names of the two
    matrices are those of peft.
    """

    def __init__(self, base: nn.Module, rank: int, scale: float):
        super().__init__()
        inputs, outputs = linear_sizes(base)
        weight = next(base.parameters())
        like = {"dtype": weight.dtype, "device": weight.device}
        self.base, self.scale = base.requires_grad_(False), scale
        self.lora_A = nn.Linear(inputs, rank, bias=False, **like)
        self.lora_B = nn.Linear(rank, outputs, bias=False, **like)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    @property
    def weight(self) -> Tensor:
        """The weight of a plain layer that does the same, for networks that read it."""
        change, weight = self.scale * self.lora_B.weight @ self.lora_A.weight, self.base.get_parameter("weight")
        return weight + (change if isinstance(self.base, nn.Linear) else change.T)

    @property
    def bias(self) -> Tensor | None:
        return self.base.get_parameter("bias") if self.base.bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.scale * self.lora_B(self.lora_A(x))
        return out


def linear_sizes(layer: nn.Module) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a linear layer; (0, 0) of every other layer."""
    if type(layer) is nn.Linear:
        return layer.in_features, layer.out_features
    if (type(layer).__module__, type(layer).__name__) == ("transformers.pytorch_utils", "Conv1D"):
        inputs, outputs = layer.get_parameter("weight").shape
        return inputs, outputs
    return 0, 0


def prepared(model: nn.Module, recipe: Train) -> nn.Module:
    """Return a model with the first weights, frozen parameters and adapted layers of a recipe; it is changed in place.

    Raises:
        UsageError: weights do not fit, a pattern names nothing, or nothing is left to train.
        MissingResource: the file of weights cannot be read.
    """
    if recipe.init is not None:
        load(model, recipe.init, private=recipe.privacy is not None or recipe.on_reports)
    if recipe.freeze is not None:
        parameters = dict(model.named_parameters())
        for name in matching(parameters, recipe.freeze, "freeze", "parameters"):
            parameters[name].requires_grad_(False)
    adapted(model, recipe.lora)
    if recipe.freeze is not None and not any(p.requires_grad for p in model.parameters()):
        raise UsageError(f"freeze: {', '.join(recipe.freeze)} leaves no parameter to train; freeze fewer, or give lora")
    for layer in frozen_layers(model, recipe).values():
        layer.eval()
    return model


def frozen_layers(model: nn.Module, recipe: Train) -> dict[str, nn.Module]:
    """Return the largest layers all of whose weights ``freeze`` names, which a training keeps in evaluation mode."""

    def search(name: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        weights = list(layer.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            yield name, layer
        else:
            for key, child in layer.named_children():
                yield from search(f"{name}.{key}" if name else key, child)

    return {} if recipe.freeze is None else dict(search("", model))


def remarks(model: nn.Module, recipe: Train) -> tuple[str, ...]:
    """Say how many weights are trained and which, and which layers are in evaluation mode; () where all are trained."""
    weights = dict(model.named_parameters())
    trained = {name: weight.numel() for name, weight in weights.items() if weight.requires_grad}
    if len(trained) == len(weights):
        return ()
    total = sum(weight.numel() for weight in weights.values())
    kinds = dict.fromkeys(re.sub(r"\b\d+\b", "*", name) if name.count(".") > 2 else name for name in trained)
    shown = ", ".join([*kinds][:SHOWN]) + (f" and {len(kinds) - SHOWN} more" if len(kinds) > SHOWN else "")
    lines = [f"{sum(trained.values()):,} of {total:,} weights are trained: {shown}"]
    if still := frozen_layers(model, recipe):
        more = f" and {len(still) - SHOWN} more" if len(still) > SHOWN else ""
        lines.append(
            f"frozen layers stay in evaluation mode (no dropout, normalisation by fixed statistics): "
            f"{', '.join([*still][:SHOWN])}{more}"
        )
    return tuple(lines)


def adapted(model: nn.Module, plan: LowRank | None) -> nn.Module:
    """Put ``AdaptedLinear`` in the place of the linear layers that a plan names; those already there remain."""
    if plan is None or any(isinstance(layer, AdaptedLinear) for layer in model.modules()):
        return model
    if any(linear_sizes(model)):
        raise UsageError("lora: the network is one linear layer alone; put it into nn.Sequential")
    layers = {name: layer for name, layer in model.named_modules() if any(linear_sizes(layer))}
    for name in matching(layers, plan.layers, "lora: layers", "linear layers"):
        layer = layers[name]
        inputs, outputs = linear_sizes(layer)
        if plan.rank >= min(inputs, outputs):
            sizes = f"{inputs} inputs and {outputs} outputs"
            raise UsageError(
                f"lora: rank {plan.rank} is no lower than that of {name!r}, with {sizes}. Give a lower rank, or leave "
                f"the layer out of layers"
            )
        parent, _, last = name.rpartition(".")
        scale = 1.0 if plan.alpha is None else plan.alpha / plan.rank
        setattr(model.get_submodule(parent), last, AdaptedLinear(layer, plan.rank, scale))
    return model


def save_adapter(model: nn.Module, recipe: Train, folder: Path) -> None:
    """Write what was trained of an adapted network in the two files that ``PeftModel.from_pretrained`` reads.

    They hold the low-rank matrices, and whole layers that have other trained weights. Nothing is written where such a
    weight belongs to the network itself, which peft cannot name.
    """
    adapted_layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, AdaptedLinear)}
    inside = {id(part) for layer in adapted_layers.values() for part in layer.modules()}
    others = {
        name: layer
        for name, layer in model.named_modules()
        if id(layer) not in inside and any(p is not None and p.requires_grad for p in layer._parameters.values())
    }
    if recipe.lora is None or "" in others:
        return
    tensors = {
        f"base_model.model.{name}.{key}.weight": layer.get_parameter(f"{key}.weight")
        for name, layer in adapted_layers.items()
        for key in ("lora_A", "lora_B")
    }
    for name, layer in others.items():
        tensors |= {f"base_model.model.{name}.{key}": value for key, value in layer.state_dict().items()}
    settings = {
        "peft_type": "LORA",
        "r": recipe.lora.rank,
        "lora_alpha": recipe.lora.rank if recipe.lora.alpha is None else recipe.lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(not isinstance(layer.base, nn.Linear) for layer in adapted_layers.values()),
        "target_modules": [*adapted_layers],
        "modules_to_save": [*others] or None,
        "inference_mode": True,
    }
    privacy = "training" if recipe.privacy is not None else "reports" if recipe.on_reports else "none"
    durable_writes.replace(folder / ADAPTER[1], saved_weights.encode(tensors, {"privacy": privacy}), mode=0o600)
    durable_writes.replace(folder / ADAPTER[0], json.dumps(settings, indent=2) + "\n")


def matching(names: Iterable[str], patterns: Sequence[str], key: str, kind: str) -> list[str]:
    """Return the names that fit one of the patterns, in order."""
    names = list(names)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            advice = did_you_mean(pattern, names) or "."
            raise UsageError(f"{key}: no {kind} fit {pattern!r}{advice} The network has {some or 'none'}")
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def load(model: nn.Module, source: Weights, *, private: bool = False) -> None:
    """Load weights from a file into a model, except for those to skip.

    Args:
        private: the training that begins from them has privacy, or its records were privatised before.
    Raises:
        UsageError: the file is another one than the recipe's, damaged, does not fit, or says that its weights were
            trained without privacy where ``private`` and the recipe does not declare their records public, or with
            it where the recipe declares nothing.
        MissingResource: it is missing.
    """
    content = read(Path(source.file), source.sha256)
    if private and content.without_privacy and source.records != "public":
        raise UsageError(
            f"init: the weights in {source.file} were trained without privacy, and the guarantee of a training that "
            f"begins from them does not cover the records behind them. Give weights that were trained on public "
            f"records; if these were, write init: {{file: {source.file}, records: public}}"
        )
    if private and content.with_privacy and source.records is None:
        raise UsageError(
            f"init: the weights in {source.file} were trained by wpriv with privacy, whose cost the statement of a "
            f"training that begins from them does not have. If it was on these records, continue from it in its own "
            f"folder with `fork=True`, at the cost of both; if it was on others, write init: {{file: {source.file}, "
            f"records: other}}"
        )
    stored = content.tensors
    present = model.state_dict()
    skipped = set(matching(present, source.skip, "init: skip", "parameters")) if source.skip else set()
    wanted = [name for name in present if name not in skipped]
    common = [name for name in wanted if name in stored]
    faults = [f"{name} is missing" for name in wanted if name not in stored]
    faults += [
        f"{name} has the shape {list(stored[name].shape)} for {list(present[name].shape)}"
        for name in common
        if stored[name].shape != present[name].shape
    ]
    faults += [f"{name} is not in the network" for name in stored if name not in present]
    faults += [
        f"{name} holds {fault}" for name in common if (fault := _unusable(stored[name], present[name])) is not None
    ]
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise UsageError(
            f"init: the weights in {source.file} do not fit the network: {'; '.join(faults[:3])}{more}. Name "
            f"those that begin at random by skip, or give another file"
        )
    model.load_state_dict({name: stored[name] if name in wanted else present[name] for name in present})


def _unusable(tensor: Tensor, like: Tensor) -> str | None:
    """Return what a stored tensor holds that no weight may hold; None where it can be loaded."""
    if tensor.layout != torch.strided:
        return "a sparse tensor"
    if tensor.is_complex() or tensor.is_floating_point() != like.is_floating_point():
        return f"numbers of type {tensor.dtype} for {like.dtype}"
    return None if bool(tensor.isfinite().all()) else "numbers that are not finite"


def read(path: Path, digest: str | None = None) -> StoredWeights:
    """Return the content of a file of weights; no code in it is run.

    Raises:
        UsageError: it has another digest, or is damaged. MissingResource: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingResource(f"init: {path} cannot be read: {error.strerror}. Give the path of a file") from None
    actual = hashlib.sha256(content).hexdigest()
    if digest is not None and actual != digest:
        raise UsageError(f"init: the recipe begins from {path} with the digest {digest}; found {actual}. Remove sha256")
    stored: Any
    header: dict[str, str] = {}
    try:
        if path.suffix == ".safetensors":
            stored, header = saved_weights.decode(content), saved_weights.metadata(content)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Unsupported as error:
        raise UsageError(f"init: {path}: {error}") from None
    except (*checkpoint.DAMAGED, pickle.UnpicklingError):
        raise UsageError(
            f"init: {path} cannot be read as weights: wanted a safetensors file, or tensors saved by torch.save"
        ) from None
    # what model.pt and the header of model.safetensors say of the training that wrote them
    without_privacy, with_privacy = header.get("privacy") == "none", header.get("privacy") in ("training", "reports")
    if isinstance(stored, dict) and "weights" in stored:
        without_privacy, with_privacy = (stored.get("clear") is clear for clear in (True, False))
        stored = stored["weights"]
    if not isinstance(stored, dict) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise UsageError(f"init: {path} holds no state_dict, a mapping from names to tensors")
    return StoredWeights(stored, without_privacy, with_privacy)
