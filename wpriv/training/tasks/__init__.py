"""Tasks: what a training trains and releases. One file each, named as users type it, with ``TASK = TaskSpec(...)``.

Importing a task loads neither torch nor data, so that recipes are checked and budgets planned without them;
``build_job`` imports what it needs. Everything that other rooms may ask of a task is a field of ``TaskSpec``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from wpriv.core import registry
from wpriv.errors import Unsupported

if TYPE_CHECKING:
    import torch

    from wpriv.config.document import Key
    from wpriv.config.field_types import StrictModel
    from wpriv.config.train_schema import Train
    from wpriv.training.data import Data
    from wpriv.training.engine.cost_estimate import CostEstimate
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.release_spec import ReleaseSpec

# the key of a recipe that is wrong, and a message
Fault = tuple["Key", str]
# public numbers of records by name: ``records`` of the training set, and of each group where a task has groups
Sizes = Mapping[str, int]


class BuildJob(Protocol):
    """Build what the engine runs from a recipe and its data set."""

    def __call__(self, recipe: Train, data: Data, device: torch.device, /, *, adjacency: str) -> Job: ...


def _no_release(recipe: Train, sizes: Sizes) -> ReleaseSpec:
    raise Unsupported(f"the task {recipe.task} has no private release; write privacy: none")


@dataclass(frozen=True, eq=False)
class TaskSpec:
    """Everything that the program may ask of a task.

    Args:
        options: the keys that a recipe may have under ``options``.
        results: columns of metrics.csv that the task measures; ``expect`` rows of recipes may name them.
        build_job: the model, its step and its measurements, on a data set. Initial weights come from torch's global
            generator, which the engine has seeded. ``adjacency`` is the relation of the accounting, "" without privacy.
        validate: faults of a recipe whose options are valid in themselves.
        release: the mechanism, sampling and bound of one step. Needed only by tasks that train with privacy.
        supports_exact_noise: whether every release under a recipe is a sum of records clipped one by one, which
            ``privacy: {noise: exact}`` requires.
        sizes: the public sizes of a data set on which the privacy depends; None where that is its number of records.
        declared_sizes: the same sizes as the recipe declares them, for plans without data; None where it does not.
        estimate_cost: time and memory of a training of so many steps of so many records, for dry runs; None if unknown.
        remarks: further lines of the statement. One that begins with NOT says that the training promises nothing.
        warnings: warnings for the statement, from the rows of metrics.csv of a finished training.
        figures: the figure that draws each file that the task leaves in the folder of a training (csv or npz).
        files: further files that it leaves there. publishable: files of these that may be published, with the reason.
        trains_on_test_records: whether the weights under a recipe depend on test records, which have no noise.
        needs_test_records: whether a data set without test records is refused.
        test_metrics: columns of metrics.csv that are computed from the weights and test records alone, so that runs may
            be compared by them (``tune``), and that may be logged.
        clips_single_records: whether a step sums the clipped gradients of single records of one network, so that the
            techniques of wpriv/config/train_schema.py apply (``augment``, ``average``, other ways of clipping).
        accepts_tokens: whether records may be tokens, [N, T] whole numbers; other tasks take them for quantities.
        reads_labels: whether a step reads the labels of its records, or the numbers to predict.
        has_classes: whether the outputs of the network under a recipe are classes, whose order statements name.
    """

    options: type[StrictModel]
    results: tuple[str, ...]
    build_job: BuildJob
    validate: Callable[[Train], Iterable[Fault]] = lambda recipe: ()
    release: Callable[[Train, Sizes], ReleaseSpec] = _no_release
    supports_exact_noise: Callable[[Train], bool] = lambda recipe: False
    sizes: Callable[[Train, Data], Sizes] | None = None
    declared_sizes: Callable[[Train], Sizes | None] = lambda recipe: None
    estimate_cost: Callable[[Train, Sizes, int, int], CostEstimate | None] = lambda recipe, sizes, steps, batch: None
    remarks: Callable[[Train, Sizes], tuple[str, ...]] = lambda recipe, sizes: ()
    warnings: Callable[[Sequence[dict[str, Any]]], list[str]] = lambda rows: []
    figures: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    publishable: Mapping[str, str] = field(default_factory=dict)
    trains_on_test_records: Callable[[Train], bool] = lambda recipe: False
    needs_test_records: bool = True
    test_metrics: tuple[str, ...] = ()
    clips_single_records: bool = False
    accepts_tokens: bool = False
    reads_labels: bool = False
    has_classes: Callable[[Train], bool] = lambda recipe: False


def load(name: str) -> TaskSpec:
    """Return the task called ``name``; the UsageError for another one suggests the nearest name."""
    task: TaskSpec = registry.load("tasks", name).TASK
    return task
