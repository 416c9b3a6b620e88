"""Predictions of a trained network: records in the form of the training records, and outputs as labels."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.training.data import Data, Packed, map_tree, named_leaves_of, of_arrays, pack

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wpriv.config.train_schema import Train
    from wpriv.training.clipping.example_gradients import Loss
    from wpriv.training.clipping.record_trees import Records

CHUNK = 1000  # records that pass through the network at once
SUPERVISED = ("classify", "fit")
"""The tasks whose network predicts the targets of records."""


@dataclass
class Predictor:
    """A trained network with the form of its records and of its targets; it holds no record.

    Args:
        recipe: of the training. folder: its results. device: where the network is.
        shape, whole: of a training record, and whether it was of bytes. vocabulary: of tokens, or 0.
        like, goals: no records and no targets in the form of the training's, where they have one of their own.
        width: the number of outputs that the network of a recipe was built with.
        classes: the label of each output; none where numbers are predicted. ignored: the label that does not count.
        targets: as ``record_loss.targets_of`` names them. link: what turns outputs into probabilities: ``softmax``,
            ``sigmoid``, or ``none`` where they are such.
        loss: of the calling program, None for that of the recipe. given: the network of the program, or None.
    """

    recipe: Train
    folder: Path
    device: str
    shape: tuple[int, ...]
    whole: bool
    vocabulary: int
    width: int
    classes: tuple[int | str, ...]
    ignored: int | None
    targets: str
    link: str
    like: Packed | None = None
    goals: Packed | None = None
    loss: Loss | None = None
    given: nn.Module | None = field(default=None, repr=False)

    @property
    def network(self) -> nn.Module:
        """The network in evaluation mode: that of the program, or that of the recipe with the weights of its folder."""
        if self.given is None:
            import torch

            from wpriv.training import models
            from wpriv.training.engine import fine_tuning, launch
            from wpriv.training.engine.saved_weights import inherit

            device = launch.device_of(self.device)
            shape = self._inputs(np.zeros((1, *self.shape))).shape[1:]
            with torch.random.fork_rng(devices=[]):  # first weights are drawn, and replaced
                network = models.build(self.recipe.model, shape, self.width)
            fine_tuning.adapted(network, self.recipe.lora)
            inherit(network.to(device), self.folder, device)
            self.given = network.eval()
        return self.given

    def predict(self, x: object) -> Any:
        """Return the label of each record, or the outputs where there is none; see ``Trained.predict``."""
        import torch

        from wpriv.training.clipping.record_trees import Tree, raw

        outputs = self._outputs(self._records(x, has_targets=False).x_test)
        if isinstance(outputs, Tree):
            return map_tree(raw(outputs), torch.Tensor.numpy)
        if not self.classes or outputs.dim() > 2:
            return outputs.numpy()
        labels: NDArray[Any] = np.array(self.classes)
        if self.targets == "shares":
            likely = self._linked(outputs).flatten(1)
            if likely.shape[1] > 1:
                return likely.numpy()
            places: NDArray[Any] = (likely[:, 0] > 0.5).long().numpy()
        else:
            places = outputs[:, : len(labels)].argmax(dim=1).numpy()
        return np.take(labels, places)

    def probabilities(self, x: object) -> NDArray[Any]:
        """Return the probability of each class; see ``Trained.predict_proba``."""
        if self.targets == "numbers" or not self.classes:
            raise UsageError("this network predicts numbers, which have no probabilities; `predict` returns them")
        likely = self._linked(self._outputs(self._records(x, has_targets=False).x_test)).numpy()
        if self.targets == "shares" and likely.size == len(likely):
            return np.stack([1 - likely.ravel(), likely.ravel()], axis=1)
        return likely

    def evaluate(self, x: object, y: object, loss: object) -> dict[str, float]:
        """Return means over records; see ``Trained.evaluate``."""
        import torch

        from wpriv.training.clipping.record_trees import raw
        from wpriv.training.tasks import _given, _supervised, fit

        data = _supervised.counted(self._records(x if y is None else (x, y), has_targets=True))
        indexed = self.targets == "classes"
        targets = fit.test_targets(data, indexed, torch.device("cpu"))
        each = self._loss if loss is None else _given.per_record(loss)
        outputs = self._outputs(data.x_test)
        sums = fit._measure(each, bool(self.classes) or self.goals is not None, raw(outputs), raw(targets))
        return {name: float(total) / len(targets) for name, total in sums.items()}

    @property
    def _loss(self) -> Loss:
        from wpriv.training.tasks import fit

        if self.loss is not None:
            return self.loss
        named = fit.Options.model_validate(self.recipe.options).loss if self.recipe.task == "fit" else "cross-entropy"
        if named == fit.GIVEN:
            raise UsageError("the loss of this training was a function, which no file holds; give it as `loss`")
        return fit.loss_of(named)

    def _linked(self, outputs: Tensor) -> Tensor:
        """Return outputs as probabilities."""
        if self.link == "none":
            return outputs
        return outputs.sigmoid() if self.link == "sigmoid" else outputs.softmax(dim=1)

    def _records(self, given: object, *, has_targets: bool) -> Data:
        """Return records as a data set, both its parts the same, after checking that they are of the trained form."""
        from wpriv.training.tasks import _given

        # without targets, numbers to predict, which may be any
        pair = _given.pair(given if has_targets else (given, np.full(_length(given), 0.5)), "x")
        pair = _shaped(pair[0], self.like), _shaped(pair[1], self.goals) if has_targets else pair[1]
        data = of_arrays(
            "the records",
            pair,
            pair,
            source="arrays of a Python program",
            declared=[str(label) for label in self.classes] if has_targets and self.classes else None,
            ignored=self.ignored,
            tokens=self.vocabulary,
        )
        if self.like is None and data.shape != self.shape:
            raise UsageError(f"records have the shape {list(self.shape)}, as in the training; found {list(data.shape)}")
        if self.like is None and (data.x_train.dtype == np.uint8) != self.whole:
            ways = ("bytes, 0 to 255, which it divides by 255", "numbers as they are")
            wanted, found = ways if self.whole else ways[::-1]
            raise UsageError(f"the network was trained on {wanted}; found {found}. Give records of that type")
        return data

    def _outputs(self, x: NDArray[Any]) -> Any:
        """Return the outputs of records [N, ...] on the CPU, in evaluation mode."""
        import torch

        from wpriv.training.clipping.record_loss import logits_of
        from wpriv.training.clipping.record_trees import called, joined, mapped, records_of
        from wpriv.training.engine.job import evaluating

        network, inputs = self.network, self._inputs(x)
        with evaluating(network), torch.no_grad():
            parts = [
                records_of(logits_of(called(network, inputs[k : k + CHUNK])), "outputs")
                for k in range(0, len(inputs), CHUNK)
            ]
        return mapped(joined(parts), lambda leaf: leaf.float().cpu())

    def _inputs(self, x: NDArray[Any]) -> Records:
        """Return records as the network takes them."""
        from wpriv.training.engine import launch
        from wpriv.training.tasks import _supervised

        named = {key: self.recipe.options.get(key) for key in _supervised.InputOptions.model_fields}
        options, form = _supervised.InputOptions.model_validate(named), None if self.like is None else self.like.form
        return _supervised.to_inputs(x, options, launch.device_of(self.device), form)

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: with the network on the CPU, and without a loss that cannot be."""
        state = {**self.__dict__, "given": self.network, "device": "cpu"}
        if self.device != "cpu":
            state["given"] = copy.deepcopy(self.network).cpu()
        try:
            pickle.dumps(self.loss)
        except (pickle.PicklingError, AttributeError, TypeError):
            state["loss"] = None
        return state


def _shaped(part: object, like: Packed | None) -> object:
    """Return records or targets packed in the form of the training, where that had one of its own."""
    from wpriv.training.tasks import _given

    if like is None:
        return part
    if not isinstance(part, Packed):
        part = pack("records", _given.quantities(part) if like.rows.dtype[0].base.kind == "f" else part)
    if part.rows.dtype != like.rows.dtype or part.form != like.form:
        wanted, found = (
            map_tree(each.unpacked(), lambda of: f"{of.dtype} {list(of.shape[1:])}") for each in (like, part)
        )
        raise UsageError(f"records and targets have the form of the training, {wanted}; found {found}")
    return part


def _length(x: object) -> int:
    """Return the number of records, at least 1."""
    part: Any = next((leaf for _, leaf in named_leaves_of(x)), None) if isinstance(x, (Mapping, tuple)) else x
    try:
        count = len(part)
    except TypeError:
        raise UsageError(f"records are arrays or tensors [N, ...]; found {type(x).__name__}") from None
    if not count:
        raise UsageError("predictions are of one record or more; found none")
    return count
