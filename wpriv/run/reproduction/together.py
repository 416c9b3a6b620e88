"""One figure of an item from the results of its recipes, as a paper has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wpriv.run.reproduction.collect import ItemResult
from wpriv.run.reproduction.items import slug
from wpriv.run.results import composite_figure


def file_name(result: ItemResult) -> str:
    """Return the file of the figure of an item within a folder of kept results."""
    return f"{result.item.paper}/together/{slug(result.item.name)}.svg"


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


def _sources(result: ItemResult) -> dict[str, Path]:
    """The folders with whole results by the names of their panels."""
    if result.item.together is None:
        return {}
    done = {each.name: each.folder for each in result.recipes if each.status == "done" and not each.kept}
    return {label: done[name] for name, label in result.item.together[1] if name in done}
