"""The classes of a training in the order of the network's outputs: for provenance, statement, terminal and header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wpriv import tasks
from wpriv.config.train_schema import Train
from wpriv.data._dataset import FROM_LABELS, FROM_LARGEST, FROM_OUTPUTS

ORIGINS = {
    "": "known without the records",
    FROM_LABELS: "read from the labels of the records, and taken as public",
    FROM_LARGEST: "the whole numbers up to the largest label of the records, which is taken as public",
    FROM_OUTPUTS: "the numbers of the network's outputs",
}
SHOWN = 12
KEYS = ("classes", "classes_from")


def of_data(train: Train, data: Any) -> dict[str, Any]:
    """Return ``classes`` and ``classes_from`` of a data set; nothing where the task has no classes."""
    if len(data.classes) < 2 or not tasks.load(train.task).has_classes(train):
        return {}
    return {"classes": list(data.classes), "classes_from": ORIGINS[data.classes_from]}


def entry(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a provenance that belongs into the entry ``data`` of the statement."""
    return {key: about[key] for key in KEYS if key in about}


def words(described: Mapping[str, Any]) -> str:
    """Return the classes of a statement's entry ``data`` with the numbers of their outputs; empty where it has none."""
    classes = described.get("classes", [])
    if not classes:
        return ""
    shown = [name if name == str(number) else f"{number} = {name}" for number, name in enumerate(classes)]
    more = f", ... {len(classes)} classes" if len(classes) > SHOWN else ""
    return f"classes by output: {', '.join(shown[:SHOWN])}{more} ({described['classes_from']})"


def data_words(described: Mapping[str, Any]) -> str:
    """Return a statement's entry ``data`` in words, its classes last."""
    facts = ", ".join(f"{key} {value}" for key, value in described.items() if key not in KEYS)
    return "; ".join(part for part in (facts, words(described)) if part)


def values(statement: Mapping[str, Any]) -> tuple[int | str, ...]:
    """Return the label of each output: whole numbers where all classes are."""
    names = statement.get("data", {}).get("classes", [])
    whole = all(name.lstrip("-").isdecimal() and str(int(name)) == name for name in names)
    return tuple(int(name) if whole else str(name) for name in names)
