"""What the five papers show, item by item, with the recipes that reproduce each: the lists in ``items/``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

PAPERS = ("plc", "wdp", "dpswd", "wgrad", "ldp")
_FOLDER = Path(__file__).parent / "items"


@dataclass(frozen=True)
class Item:
    """A table, figure or statement of a paper.

    Attributes:
        paper: short name of the paper.
        name: as the paper calls it, such as ``Figure 4``.
        about: what it shows.
        recipes: names of the shipped recipes that reproduce it; empty where nothing does.
        missing: what is not reproduced and why; empty where all is.
        together: the figure, and the name of the panels of each recipe, of one figure over several recipes.
        has_claims: False where the claims and expected numbers of its recipes are about other items.
    """

    paper: str
    name: str
    about: str
    recipes: tuple[str, ...] = ()
    missing: str = ""
    together: tuple[str, tuple[tuple[str, str], ...]] | None = None
    has_claims: bool = True


@dataclass(frozen=True)
class Paper:
    """A paper and its items."""

    name: str
    title: str
    authors: str
    items: tuple[Item, ...]


def paper(name: str) -> Paper:
    """Read the items of one paper."""
    data = yaml_document.read(_FOLDER / f"{name}.yaml").data
    rows = tuple(
        Item(
            name,
            row["item"],
            row["about"],
            tuple(row.get("recipes", ())),
            row.get("missing", ""),
            _together(row),
            row.get("has_claims", True),
        )
        for row in data["items"]
    )
    return Paper(name, data["title"], data["authors"], rows)


def _together(row: dict[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    entry = row.get("together")
    return None if entry is None else (str(entry["figure"]), tuple(entry["panels"].items()))


def select(word: str) -> list[Paper]:
    """Return the papers, with those of their items that a word names: ``all``, a paper or an item of one.

    An item is named as ``plc/figure-4``, or by one of its recipes, as ``plc/fig4-adp-pdp``.

    Raises:
        UsageError: the word names nothing.
    """
    if word == "all":
        return [paper(name) for name in PAPERS]
    name, _, rest = word.partition("/")
    if name not in PAPERS:
        raise UsageError(
            f"no paper called {name[:60]!r}{did_you_mean(name, ['all', *PAPERS]) or '.'} Known: all, "
            f"{', '.join(PAPERS)}"
        )
    chosen = paper(name)
    if not rest:
        return [chosen]
    some = tuple(item for item in chosen.items if rest == slug(item.name) or word in item.recipes)
    if not some:
        known = [slug(item.name) for item in chosen.items]
        raise UsageError(
            f"{name} has no item {rest[:60]!r}{did_you_mean(rest, known) or '.'} Its items: {', '.join(known)}"
        )
    return [Paper(chosen.name, chosen.title, chosen.authors, some)]


def slug(name: str) -> str:
    """Return the name of an item as it stands in a command: ``figures-1-5-and-6``."""
    kept = "".join(letter if letter.isalnum() else " " for letter in name.lower())
    return "-".join(kept.split())
