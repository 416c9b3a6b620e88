"""Files of recipes: shipped ones by name, found by path or name, listed and copied."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config import shipped, yaml_document
from wpriv.config.field_types import Time
from wpriv.errors import UsageError
from wpriv.files import STDIN, durable_writes
from wpriv.hints import did_you_mean

# former names of shipped recipes and those of today
RENAMED: Mapping[str, str] = {"wdp/propositions": "wdp/claims"}
# shipped folders whose recipes are of kind check, which `wpriv compare FOLDER` puts in one table
BANKS = ("claims/libraries",)
ELSEWHERE = "name another file or folder to copy to"


class RenamedRecipe(FutureWarning):
    """A recipe was named by its former name, which still works."""


@dataclass(frozen=True)
class Listed:
    """A row of ``wpriv recipe ls``: name, kind, how long the recipe takes, the data that it needs, and its source."""

    name: str
    kind: str
    time: Time | None
    data: str
    source: str


def find(name: str) -> Path:
    """Find a recipe by its path, or a shipped one by its name, with or without its folder and its ``.yaml``.

    ``-`` is standard input, whose folder is the current one. A former name finds the recipe as well, with the warning
    ``RenamedRecipe``.
    """
    if name == STDIN:
        return Path(name)
    with_suffix = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    try:
        for candidate in (Path(name), Path(with_suffix)):
            if candidate.is_file():
                return candidate
    except (OSError, ValueError):
        pass  # a name that is too long or holds a null byte is no file
    known = shipped()
    bare = with_suffix.rpartition(".")[0].removeprefix("recipes/")
    matches = [key for key in known if bare in (key, key.rpartition("/")[2])]
    if len(matches) == 1:
        return known[matches[0]]
    if matches:
        raise UsageError(f"several recipes are called {name!r}: {', '.join(matches)}. Give the folder as well")
    for former, today in RENAMED.items():
        if bare in (former, former.rpartition("/")[2]):
            warnings.warn(f"the recipe {former} is now called {today}", RenamedRecipe, stacklevel=2)
            return known[today]
    near = did_you_mean(bare[:100], list(known)) or "."
    message = f"no recipe {name[:200]!r}: neither a file nor a shipped recipe{near}"
    raise UsageError(f"{message} `wpriv recipe ls` lists the shipped ones")


def bare_folder(name: str) -> str:
    """Return the name of a folder of recipes without ``recipes/`` and without a slash at its end."""
    return name.removeprefix("recipes/").rstrip("/")


def short_name(path: Path) -> str:
    """Return the name of a recipe, which its results take by default: that of its file, without the suffix.

    That of standard input is ``stdin``. Where several shipped recipes have the same, such as ``claims``, it is
    ``wdp-claims``.
    """
    if str(path) == STDIN:
        return "stdin"
    known = shipped()
    shared = sum(key.rpartition("/")[2] == path.stem for key in known) > 1
    key = next((key for key, file in known.items() if shared and file == path.resolve()), path.stem)
    return key.replace("/", "-")


def listing(beginning: str | None = None) -> list[Listed]:
    """List the shipped recipes by name, or only those whose names begin so (``plc``, ``plc/fig7``, ``fig7``).

    A folder of recipes of kind check is one row, unless the beginning names it.
    """
    known, start = shipped(), ""
    if beginning is not None:
        start = beginning.lower().removeprefix("recipes/")
        papers = list(dict.fromkeys(name.partition("/")[0] for name in known))
        begin = [name for name in known if name.startswith(start) or name.rpartition("/")[2].startswith(start)]
        known = {name: known[name] for name in begin}
        if not known:
            near = did_you_mean(beginning[:100], papers) or "."
            raise UsageError(f"no shipped recipe begins with {beginning[:100]!r}{near} Papers: {', '.join(papers)}")
    rows: list[Listed] = []
    for name, path in known.items():
        data = yaml_document.read(path).data
        time = None if data.get("time") is None else Time.model_validate(data["time"])
        folder = name.rpartition("/")[0]
        if folder in BANKS and name.startswith(start) and not start.startswith(folder):
            if all(row.name != folder for row in rows):
                count = sum(each.rpartition("/")[0] == folder for each in known)
                rows.append(Listed(folder, "check", None, "", f"{count} claims (wpriv recipe ls {folder})"))
            continue
        rows.append(Listed(name, str(data["kind"]), time, _data_of(data), str(data.get("source", ""))))
    return rows


def _data_of(data: dict[str, Any]) -> str:
    """The data set of a recipe, or the files that its mechanisms read; empty where there is none."""
    data_set = data.get("data") or {}
    if data_set.get("name") == "pair":
        sides = [str(data_set.get(side)).partition("/")[0] for side in ("source", "target")]
        return " to ".join(dict.fromkeys(sides))
    steps = [*(data.get("process") or []), *(step for case in (data.get("cases") or {}).values() for step in case)]
    files = [step["file"] for step in steps if isinstance(step.get("file"), str)]
    return str(data_set.get("name") or data_set.get("file") or ", ".join(dict.fromkeys(files)))


def copy(name: str, to: Path) -> list[Path]:
    """Copy a recipe, and the files its steps read; return what was written.

    Args:
        to: the new file, ending in .yaml or .yml, or a directory; missing folders are created.
    Raises:
        UsageError: no such recipe, or a target exists: nothing is overwritten. MissingResource: it cannot be written.
    """
    path = find(name)
    recipe = yaml_document.read(path)
    steps = [value for value in map(recipe.at, recipe.values) if isinstance(value, dict)]
    files = {step[key] for step in steps for key in ("file", "observed") if isinstance(step.get(key), str)}
    target = to if to.suffix in (".yaml", ".yml") and not to.is_dir() else to / path.name
    beside = [(path.parent / file, target.parent / file) for file in sorted(files) if (path.parent / file).is_file()]
    pairs = [(path, target), *beside]
    for _, new in pairs:
        if os.path.lexists(new):
            raise UsageError(f"{new} exists and is not overwritten; name another file or directory")
    for old, new in pairs:
        durable_writes.make_folder(new.parent, ELSEWHERE)
        durable_writes.replace(new, old.read_bytes(), advice=ELSEWHERE)
    return [new for _, new in pairs]
