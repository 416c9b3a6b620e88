"""The data set of a training: its public sizes, noise on its records, its classes, and earlier trainings on them.

A training may add noise to its records itself: ``data: {name: mnist, privatize: {...}}`` is the verb ``privatize`` in
memory. The noise must be the same whenever the run continues, so its seed is known: good for experiments. For records
of real people privatise once, with noise that nobody can draw again, and train on that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.config.recipe import Recipe
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError, WprivError
from wpriv.results import model, storage
from wpriv.results.model import Json
from wpriv.training import tasks
from wpriv.training.data import Data, RecordNoise, scaled
from wpriv.training.data._dataset import FROM_LABELS, FROM_LARGEST, FROM_OUTPUTS
from wpriv.training.local import local_statement
from wpriv.training.local.privatize import privatize
from wpriv.training.local.records import Records
from wpriv.training.reports import words

MAX_SCALE_RATIO = 50.0  # of the largest column of a table to the smallest, or to 1, before a warning
SAMPLED = 100_000  # records that the scales are computed from


def sizes(recipe: Recipe, root: str | Path | None) -> Mapping[str, int]:
    """Return the sizes that privacy depends on, from the recipe if it declares them, else from the data."""
    options = recipe.train.data
    task = tasks.load(recipe.train.task)
    declared = task.declared_sizes(recipe.train) if options.limit is options.first is None else None
    if declared is not None:
        return dict(declared)
    if options.records is not None and task.sizes is None:
        return {"records": min(options.records, options.limit or options.records, options.first or options.records)}
    return sizes_of(recipe, data(recipe, root))


def sizes_of(recipe: Recipe, loaded: Data) -> Mapping[str, int]:
    """Return the sizes that a training's privacy depends on, from its loaded data."""
    task = tasks.load(recipe.train.task)
    return {"records": loaded.records} if task.sizes is None else task.sizes(recipe.train, loaded)


def scale_warning(recipe: Recipe, loaded: Data) -> str | None:
    """Return a warning if the columns of a table have very different scales and the recipe does not normalise them.

    It is for the screen only: it is computed from the training records, and no statement may contain it.
    """
    x, options = loaded.x_train, recipe.train.options
    if x.ndim != 2 or not loaded.columns or x.shape[1] != len(loaded.columns):
        return None
    if options.get("normalise") is not None or options.get("ranges") is not None:
        return None
    scales = np.abs(x[:SAMPLED].astype(np.float64)).max(axis=0, initial=0.0)
    nonzero = np.flatnonzero(scales > 0)
    if not len(nonzero) or scales[nonzero].max() <= MAX_SCALE_RATIO * max(scales[nonzero].min(), 1.0):
        return None
    column = str(loaded.columns[int(nonzero[np.argmax(scales[nonzero])])])
    return (
        f"the columns of {loaded.name} have very different scales ({column[:60]!r} is more than {MAX_SCALE_RATIO:g} "
        f"times another), and a training with clipped gradients learns little from such columns. Rescale them by "
        f"public constants, never computed from these records: rewrite the file, or give the task "
        f"options: {{normalise: {{mean: [...], std: [...]}}}} where it has them"
    )


def data(recipe: Recipe, root: str | Path | None) -> Data:
    """Return the data set of a recipe, cut to its limit, with noise on its training records if the recipe adds it.

    Raises:
        MissingResource: the data set is missing. UsageError: it has another size than the recipe declares, or no test
            records.
    """
    from wpriv.training.data import read, read_own

    options = recipe.train.data
    folder = root or options.root
    if options.own:
        loaded = read_own(str(options.file), options.name, options.parameters())
    else:
        loaded = read(options.name, root=None if folder is None else Path(folder), **options.parameters())
    if options.records is not None and loaded.records != options.records:
        raise UsageError(
            f"{recipe.name}: data: records: the recipe declares {options.records} training records; "
            f"found {loaded.records} in {loaded.name}"
        )
    _require_labels(recipe, loaded)
    if not len(loaded.x_test) and tasks.load(recipe.train.task).needs_test_records:
        raise UsageError(
            f"{recipe.name}: data: the task {recipe.train.task} is evaluated on test records, "
            f"and {loaded.name} has none; give some"
        )
    if loaded.vocabulary and (options.privatize is not None or not tasks.load(recipe.train.task).accepts_tokens):
        fault = "privatize" if options.privatize is not None else f"the task {recipe.train.task}"
        raise UsageError(
            f"{recipe.name}: data: {loaded.name} holds tokens, and {fault} takes the numbers of a record for "
            f"quantities; use the task classify or fit, without privatize"
        )
    loaded = loaded if options.limit is None else loaded.limited(options.limit)
    loaded = loaded if options.first is None else loaded.limited(options.first, tests=False)
    return loaded if options.privatize is None else privatised(recipe, loaded, folder)


def _require_labels(recipe: Recipe, loaded: Data) -> None:
    """Refuse records with noise whose labels were not published, for a task that learns from labels."""
    noise, task = recipe.train.data.privatize, recipe.train.task
    if noise is not None:
        published, remedy = noise.public_labels, "give data: privatize: public_labels: true"
    elif loaded.noise is not None:
        published = local_statement.LABELS_PUBLIC in loaded.noise.statement.get("not_covered", ())
        remedy = "write the reports with --public-labels"
    else:
        return
    if not published and tasks.load(task).reads_labels:
        raise UsageError(
            f"{recipe.name}: data: the task {task} learns from labels, which have no noise and are not declared "
            f"public: all of them would be 0. Where they are public, {remedy}; else take a task that needs none"
        )


def privatised(recipe: Recipe, data: Data, root: str | Path | None) -> Data:
    """Return a data set with the recipe's noise on its training records; test records stay as they are, as float32.

    What has no noise and is not declared public becomes 0: labels and numbers to predict, unless the recipe declares
    them public, and groups.

    Raises:
        UsageError: see ``privatize``; or there is no seed, or the data set has noise already.
    """
    train = recipe.train
    assert train.data.privatize is not None
    options: Json = train.data.privatize.model_dump(exclude_none=True)
    options.setdefault("seed", train.seed)
    if options["seed"] is None:
        raise UsageError(
            f"{recipe.name}: data: privatize must draw the same noise whenever the run continues: give seed. Or "
            f"privatise once, as a release needs, with `wpriv privatize`, and train on its file: "
            f"data: {{name: privatized, file: FILE.npz}}"
        )
    if data.noise is not None:
        raise UsageError(f"{recipe.name}: data: privatize: {data.name} has noise already; leave out privatize")
    try:
        records = Records(data.x_train, f"{data.name}:train", data.y_train, data.notes)
        reports = privatize(records, options.pop("mech"), root=root, **options)
    except UsageError as error:
        raise UsageError(f"{recipe.name}: data: privatize: {error}") from None
    assert reports.x is not None
    statement = reports.statement
    p, parameter = (2, "sigma") if "sigma" in statement["noise"] else (1, "scale")
    domain = "dct" if options.get("dct") else "as read"
    note = f"noise was added to every training record: {words.headline(local_statement.read(statement))}"
    return replace(
        data,
        x_train=reports.x,
        y_train=np.zeros(len(reports.x), np.int64) if reports.labels is None else reports.labels,
        x_test=scaled(data.x_test),
        response_train=data.response_train if train.data.privatize.public_labels else _zeros(data.response_train),
        sensitive_train=_zeros(data.sensitive_train),
        noise=RecordNoise(p, float(statement["noise"][parameter]), domain, statement),
        notes=(*data.notes, note),
    )


def _zeros(values: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if values is None else np.zeros_like(values)


# A network of the calling program may hold what an earlier training left in it, in a form that no comparison of weights
# shows. So the statement of a training names the earlier ones on any of its records, with the cost of all together.

CHUNK = 4096


_past: list[tuple[Path, NDArray[np.uint64]]] = []
"""The private trainings of this process: the folder, and the numbers of the records, sorted."""


def numbers_of(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a number for each record [N, ...], sorted: the same for equal records, and by chance alone for others."""
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    width = rows.itemsize * rows.shape[1]
    multipliers = np.random.default_rng(0).integers(0, 2**64, -(-width // 8), dtype=np.uint64) | np.uint64(1)
    numbers = np.zeros(len(rows), dtype=np.uint64)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK].view(np.uint8).reshape(-1, width)
        words = np.pad(part, ((0, 0), (0, -width % 8))).view(np.uint64)
        words ^= words >> np.uint64(29)
        numbers[start : start + CHUNK] = (words * multipliers).sum(axis=1, dtype=np.uint64)
    return np.sort(numbers ^ (numbers >> np.uint64(32)))


def name_of(records: NDArray[np.uint64]) -> str:
    """Return a name of a set of records: the same in every order, whatever their targets and the test records."""
    return f"{len(records)} records {int(records.sum(dtype=np.uint64)):x}"


def note(folder: Path, records: NDArray[np.uint64]) -> None:
    """Remember that a private training on some records began in a folder."""
    where = folder.resolve()
    if all(path != where or not np.array_equal(other, records) for path, other in _past):
        _past.append((where, records))


def sharing(folder: Path, records: NDArray[np.uint64]) -> list[Path]:
    """Return the folders of earlier private trainings of this process, but one, that had one of the records."""
    shared = [path for path, other in _past if len(np.intersect1d(other, records))]
    return [path for path in dict.fromkeys(shared) if path != folder.resolve()]


def require_records(path: Path, data: Data) -> None:
    """Refuse a folder of results of a training on other records, as far as its provenance names them."""
    fingerprint = fingerprint_in(path)
    if fingerprint not in (None, data.fingerprint):
        raise UsageError(
            f"{path} holds a finished training on other records. Name another folder with `out`, or give those records"
        )


def require_other_weights(recipe: Recipe, data: Data) -> None:
    """Refuse first weights from a folder of results on the same records, unless these are declared public."""
    training = recipe.train
    if training is None or training.init is None or training.privacy is None or training.init.records == "public":
        return
    from wpriv.training.engine import fine_tuning

    path = Path(training.init.file).parent
    # weights that were trained without privacy are refused when they are loaded
    private = not fine_tuning.read(Path(training.init.file), training.init.sha256).without_privacy
    if private and fingerprint_in(path) == data.fingerprint:
        raise UsageError(
            f"init: the weights in {training.init.file} were trained on the records of this training. Continue from "
            f"them with `fork=True` in the folder {path}, which accounts for both"
        )


def fingerprint_in(path: Path) -> str | None:
    """Return the fingerprint of the records of the training whose results a folder holds; None where it has none."""
    try:
        return model.json_object(path / storage.PROVENANCE).get("data_fingerprint")
    except WprivError:
        return None


ORIGINS = {
    "": "known without the records",
    FROM_LABELS: "read from the labels of the records, and taken as public",
    FROM_LARGEST: "the whole numbers up to the largest label of the records, which is taken as public",
    FROM_OUTPUTS: "the numbers of the network's outputs",
}
SHOWN = 12
KEYS = ("classes", "classes_from")


def of_data(train: Train, data: Data) -> Json:
    """Return ``classes`` and ``classes_from`` of a data set; nothing where the task has no classes."""
    if len(data.classes) < 2 or not tasks.load(train.task).has_classes(train):
        return {}
    return {"classes": list(data.classes), "classes_from": ORIGINS[data.classes_from]}


def entry(about: Mapping[str, object]) -> Json:
    """Return the part of a provenance that belongs into the entry ``data`` of the statement."""
    return {key: about[key] for key in KEYS if key in about}


def class_words(described: Json) -> str:
    """Return the classes of a statement's entry ``data`` with the numbers of their outputs; empty where it has none."""
    classes = described.get("classes", [])
    if not classes:
        return ""
    shown = [name if name == str(number) else f"{number} = {name}" for number, name in enumerate(classes)]
    more = f", ... {len(classes)} classes" if len(classes) > SHOWN else ""
    return f"classes by output: {', '.join(shown[:SHOWN])}{more} ({described['classes_from']})"


def data_words(described: Json) -> str:
    """Return a statement's entry ``data`` in words, its classes last."""
    facts = ", ".join(f"{key} {value}" for key, value in described.items() if key not in KEYS)
    return "; ".join(part for part in (facts, class_words(described)) if part)


def values(statement: Json) -> tuple[int | str, ...]:
    """Return the label of each output: whole numbers where all classes are."""
    names = statement.get("data", {}).get("classes", [])
    whole = all(name.lstrip("-").isdecimal() and str(int(name)) == name for name in names)
    return tuple(int(name) if whole else str(name) for name in names)
