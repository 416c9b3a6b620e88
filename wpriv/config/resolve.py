"""Resolve a document: paths of files, ``quick`` overrides, defaults written out, and panels that inherit keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.document import Document, Key
from wpriv.config.schema import Panel
from wpriv.config.train_parts import AVERAGE_PREFIX
from wpriv.config.train_schema import BATCH_MEAN, Train
from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.files import python_file

# keys that describe a run without changing its results
COSMETIC = (
    *("source", "title", "figure", "limits", "expect", "claims", "printed", "procedure", "time"),
    *("checkpoint", "cluster", "quick"),
)
# keys whose value may name a Python file of the user's
OWN_CODE = ("model", "data")
# keys of a data set that name files and folders of the user's
OWN_FILES = ("file", "test_file", "folder", "attributes")


def resolve_training(document: Document, *, quick: bool = False, folder: Path | None = None) -> Document:
    """Merge the ``quick`` overrides of a recipe of kind train into it, or leave them out.

    Args:
        folder: of the recipe. Python files that it names are looked for there first, and their digests are filled in;
            data files are looked for there where they do not lie in the working directory.
    """
    data = {key: value for key, value in document.data.items() if key != "quick"}
    if quick:
        written = document.data.get("quick")
        overrides = written if isinstance(written, Mapping) else {}
        # expected numbers, claims and the time are about the full run, and so is the number of runs
        dropped = {"expect", "claims", "printed", "procedure", "time", "seeds"}
        # parts of two sweeps make no sense together
        dropped |= {"sweep"} & overrides.keys()
        data = merged({key: value for key, value in data.items() if key not in dropped}, overrides)
    for key, entry in ((key, data.get(key)) for key in OWN_CODE):
        if isinstance(entry, dict) and isinstance(entry.get("file"), str) and entry["file"].endswith(".py"):
            data[key] = _located(entry, folder, python_file.digest)
    if isinstance(data.get("data"), dict) and folder is not None:
        data["data"] = {key: _beside(key, value, folder) for key, value in data["data"].items()}
    init = {"file": data["init"]} if isinstance(data.get("init"), str) else data.get("init")
    if isinstance(init, dict) and isinstance(init.get("file"), str) and "\0" not in init["file"]:
        # results of another recipe lie where they were made, and not beside this one
        beside = None if init.get("recipe") else folder
        data["init"] = _located(init, beside, lambda path: hashlib.sha256(path.read_bytes()).hexdigest())
    return Document(document.name, document.lines, data, document.keys, document.values)


def _beside(key: str, value: object, folder: Path) -> object:
    """A path of a data set as found beside the recipe, where there is none in the working directory."""
    if key not in OWN_FILES or not isinstance(value, str) or not value or "\0" in value:
        return value
    try:
        elsewhere = not Path(value).exists() and (folder / value).exists()
    except OSError:  # a name that is too long
        return value
    return str((folder / value).resolve()) if elsewhere else value


def _located(entry: dict[str, Any], folder: Path | None, digest: Callable[[Path], str]) -> dict[str, object]:
    """A file of the user's with its path as found beside the recipe, and with its digest if it can be read."""
    path = Path(entry["file"])
    if folder is not None and (folder / path).is_file():
        path = (folder / path).resolve()
    try:
        return {"sha256": digest(path), **entry, "file": str(path)}
    except (OSError, MissingResource):
        return entry


def written_out(model: Train) -> dict[str, object]:
    """Return the plain data of a valid recipe with its defaults, in the order in which recipes are written."""
    plain = model.model_dump(exclude_none=True, exclude={"privacy", "quick"})
    plain = {key: value for key, value in plain.items() if value != []}
    if plain.get("seeds") == 1:
        del plain["seeds"]  # one run is what every recipe without the key is
    plain["privacy"] = "none" if model.privacy is None else model.privacy.model_dump(exclude_none=True)
    if model.privacy is not None and model.privacy.clip != "batch-mean":
        for key in BATCH_MEAN:
            del plain["privacy"][key]
    if model.privacy is not None and model.privacy.noise == "rounded":
        # this default is left out, so that a run is the same under recipes from before there was a choice
        del plain["privacy"]["noise"]
    if not model.shard_weights:
        del plain["shard_weights"]  # for the same reason
    return {key: plain[key] for key in Train.model_fields if key in plain}


def merged(data: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """Merge overrides: None removes a key, epochs and steps replace each other, a digest goes with its file."""
    result = dict(data)
    if "file" in overrides and "sha256" not in overrides:
        result.pop("sha256", None)
    for one, other in (("epochs", "steps"), ("steps", "epochs")):
        if one in overrides and other not in overrides:
            result.pop(other, None)
    for key, value in overrides.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return {key: value for key, value in result.items() if value is not None or key not in overrides}


def overridden(data: Mapping[str, object], path: str, value: object) -> dict[str, object]:
    """Return the data with the value at one dotted path (``privacy.eps``) replaced or added."""
    parts = path.split(".")
    if not all(parts):
        raise UsageError(f"a key is given by its path, as in privacy.eps; found {path[:80]!r}")
    overrides: Any = value
    for part in reversed(parts):
        overrides = {part: overrides}
    inner: object = data
    for part in parts[:-1]:
        inner = inner.get(part, {}) if isinstance(inner, Mapping) else None
        if not isinstance(inner, Mapping):
            raise UsageError(f"the recipe has no mapping at {part!r} in which {path!r} could stand")
    return merged(data, overrides)


def essence(data: Any) -> Any:
    """Return what decides the results of a recipe or a panel: recipes with equal ones are the same run."""
    if not isinstance(data, Mapping):
        return data
    kept = {key: value for key, value in data.items() if key not in COSMETIC}
    return {**kept, "panels": [essence(p) for p in kept["panels"]]} if isinstance(kept.get("panels"), list) else kept


def results(model: Train) -> tuple[str, ...]:
    """Return the columns of numbers that a training measures; none where there is no such task."""
    if not registry.known("tasks", model.task):
        return ()
    columns: tuple[str, ...] = registry.load("tasks", model.task).TASK.results
    adapted = ("clip_norm",) if model.privacy is not None and model.privacy.adapt is not None else ()
    return (*columns, *_averaged(model, columns), *adapted)


def test_metrics(model: Train) -> tuple[str, ...]:
    """Return the columns that a training computes from its weights and test records alone."""
    columns: tuple[str, ...] = registry.load("tasks", model.task).TASK.test_metrics
    return (*columns, *_averaged(model, columns))


def _averaged(model: Train, columns: tuple[str, ...]) -> tuple[str, ...]:
    return () if model.average is None else tuple(AVERAGE_PREFIX + column for column in columns)


# of the keys of a group, those written last replace the others
_EXCLUSIVE = (("process", "cases"), ("eps", "eps_per_n", "delta"))
_NOT_INHERITED = ("kind", "source", "panels", "quick", "expect", "name", "claims", "printed", "procedure", "time")


@dataclass(frozen=True)
class Resolved:
    """A document as written, and the parts to run.

    ``parts`` are the panels of a comparison, each with the keys around it merged in (a comparison without panels is
    one), or the one document of another kind. Their places are those of the file. Nothing has been validated here.
    """

    document: Document
    parts: tuple[Document, ...]
    quick: bool = False


def resolve(document: Document, *, quick: bool = False, folder: Path | None = None) -> Resolved:
    """Resolve a document, with or without its ``quick`` overrides, whatever it holds.

    Args:
        folder: of the recipe. Files of mechanisms and Python files are looked for there; their paths become absolute.
    """
    kind, panels = document.data.get("kind"), document.data.get("panels")
    if kind == "train":
        parts = [resolve_training(document, quick=quick, folder=folder)]
    elif kind == "compare":
        paths: list[Key] = [("panels", i) for i in range(len(panels))] if isinstance(panels, list) else []
        parts = [_merged(document, path, quick) for path in paths or [()]]
    else:
        parts = [document]
    if folder is not None:
        _locate_files(document.data, folder)
    return Resolved(document, tuple(parts), quick)


def panel(part: Document) -> Panel:
    """Return the model of a part of a comparison with a sound form; its name is empty where there are no panels."""
    named = Panel.model_validate({"name": "-", **part.data})
    return named if "name" in part.data else named.model_copy(update={"name": ""})


def _merged(document: Document, path: Key, quick: bool) -> Document:
    """The panel at a path with the keys around it; later layers win."""
    layers: list[Key] = [(), path] if path else [()]
    if quick:
        layers += [(*layer, "quick") for layer in layers]
    data: dict[str, object] = {}
    origins: dict[str, Key] = {}
    for layer in layers:
        mapping = _mapping(document, layer)
        for key, value in mapping.items():
            if key in _NOT_INHERITED or value is None:
                continue
            for group in _EXCLUSIVE:
                for other in group if key in group else ():
                    if other not in mapping:
                        data.pop(other, None)
            data[key], origins[key] = value, (*layer, key)
    root = min(origins.values(), key=len)[:-1] if origins else ()
    inner = _mapping(document, path)
    name = {"name": inner.get("name")} if path else {}
    expect = {"expect": inner["expect"]} if inner.get("expect") else {}
    origins |= {key: (*path, key) for key in (*name, *expect)}
    merged = {**name, **data, **expect}
    return Document(document.name, document.lines, merged, document.keys, document.values, origins, root)


def file_beside(folder: Path, file: Any) -> Path | None:
    """Return the path of a file that lies in the folder of a recipe; None where there is no such file."""
    is_file = isinstance(file, str) and "\0" not in file and (folder / file).is_file()
    return folder / file if is_file else None


def _locate_files(data: object, folder: Path) -> None:
    """Make the paths of files beside a recipe absolute, in every step inside some data."""
    if isinstance(data, dict) and isinstance(data.get("mech"), str):
        for key in ("file", "observed", "strategy"):
            if (file := file_beside(folder, data.get(key))) is not None:
                data[key] = str(file.resolve())
    elif isinstance(data, (dict, list)):
        for inner in data.values() if isinstance(data, dict) else data:
            _locate_files(inner, folder)


def _mapping(document: Document, path: Key) -> dict[str, object]:
    try:
        value = document.at(path)
    except (LookupError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}
