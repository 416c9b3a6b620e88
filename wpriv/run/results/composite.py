"""Arrays of several trainings, such as samples of their generators, as the panels of one figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.figures import _names
from wpriv.run.results import file_names, read
from wpriv.run.results.means import RUN

# panels of one figure; the arrays of further settings stay in their folders
MAX_PANELS = 36


@dataclass(frozen=True)
class ArraysByPanel:
    """The files of arrays of several trainings by the name of their panel; a file is read when its panel is drawn."""

    files: Mapping[str, Path]

    @property
    def names(self) -> list[str]:
        return list(self.files)

    def of(self, name: str) -> dict[str, Any]:
        """Return the arrays of one panel by name."""
        arrays: dict[str, Any] = read.arrays(self.files[name])
        return arrays


def arrays_by_panel(path: Path, name: str) -> ArraysByPanel:
    """Find a file of arrays in the folders of the trainings that a statement lists, in the first run of each setting.

    Args:
        path: the folder of all trainings. name: of the file, such as ``samples.npz``.
    """
    files: dict[str, Path] = {}
    for run in _runs(path):
        file = path / str(run["folder"]) / name
        if len(files) < MAX_PANELS and file.is_file():
            files.setdefault(", ".join(setting_words(run["labels"])), file)
    return ArraysByPanel(files)


def setting_words(labels: Mapping[str, Any]) -> list[str]:
    """Return ``α = 0.75``, ``ε = ∞``: each swept key by its last word with its value, without the number of a run."""
    # all digits, since the words tell settings apart
    return [_names.value(key.rpartition(".")[2], str(value)) for key, value in labels.items() if key != RUN]


def _runs(path: Path) -> list[dict[str, Any]]:
    """The trainings that the statement of a folder lists; none where it cannot be read."""
    try:
        runs = json.loads((path / file_names.STATEMENT).read_text(encoding="utf-8"))["runs"]
        return [run for run in runs if isinstance(run["labels"], dict) and Path(run["folder"]).name == run["folder"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
