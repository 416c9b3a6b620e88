"""One figure of an item from the results of its recipes, as a paper has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wpriv.errors import MissingResource, UsageError
from wpriv.files.json_values import plain
from wpriv.run.reproduction.collect import ItemResult, RecipeResult
from wpriv.run.reproduction.items import slug
from wpriv.run.results import composite_figure, model

# what tells a run from others in its provenance
_RUN = ("git_commit", "wall_seconds")


def file_name(result: ItemResult) -> str:
    """Return the file of the figure of an item within a folder of kept results."""
    return f"{result.item.paper}/together/{slug(result.item.name)}.svg"


def origin_file(figure: Path) -> Path:
    """Return the file beside a kept figure that says which runs it was drawn from."""
    return figure.with_suffix(".json")


def origins(result: ItemResult) -> dict[str, dict[str, Any]]:
    """Return what tells the runs of the recipes of an item from others: the commit and the time of each."""
    return {each.name: {key: each.provenance.get(key) for key in _RUN} for each in _panels(result)}


def outdated_panels(result: ItemResult, figure: Path) -> list[str]:
    """Return the recipes whose results in a folder are not those in a kept figure; none if its runs are not known.

    A later run of one recipe replaces its results or is its first, and the figure stays until all are run again.
    """
    try:
        drawn = model.json_object(origin_file(figure))
    except (UsageError, MissingResource):
        return []
    now = plain(origins(result))
    return [name for name, run in now.items() if drawn.get(name) != run]


def note(names: Sequence[str]) -> str:
    """Return the sentence on a figure that does not show the latest results of some recipes."""
    return f"This figure does not show the latest results of {', '.join(names)}; they are below"


def can_be_drawn(result: ItemResult, *, needs_all: bool = False) -> bool:
    """Tell whether an item has such a figure, and whole results of two recipes of it at least, or of all."""
    count, wanted = len(_sources(result)), 0 if result.item.together is None else len(result.item.together[1])
    return count == wanted > 1 if needs_all else count > 1


def plot(result: ItemResult, out: Path, formats: Sequence[str] = ("svg",)) -> list[Path]:
    """Draw the figure of an item.

    Raises:
        UsageError: a folder lacks what the figure shows.
    """
    assert result.item.together is not None
    return composite_figure.plot_folders(
        _sources(result), result.item.together[0], formats=formats, out=out, stem=slug(result.item.name)
    )


def _panels(result: ItemResult) -> list[RecipeResult]:
    """The recipes whose results the figure of an item shows, as far as they are there."""
    names = [] if result.item.together is None else [name for name, _ in result.item.together[1]]
    return [each for each in result.recipes if each.name in names and each.status == "done"]


def _sources(result: ItemResult) -> dict[str, Path]:
    """The folders with whole results by the names of their panels."""
    if result.item.together is None:
        return {}
    done = {each.name: each.folder for each in result.recipes if each.status == "done" and not each.kept}
    return {label: done[name] for name, label in result.item.together[1] if name in done}
