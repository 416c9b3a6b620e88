"""Objects with the classes, modules and attributes that a golden file records, without their libraries."""

from __future__ import annotations

import enum
import json
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden" / "checks"


def golden(name: str) -> object:
    """The data of a golden JSON file."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def standin(data: object) -> object:
    """An object of the class and module that plain data name, with its attributes; other data as they are."""
    if isinstance(data, list):
        return [standin(each) for each in data]
    if not isinstance(data, dict):
        return data
    if "member" in data:
        return enum.Enum(data["type"], [data["member"]], module=data["module"])[data["member"]]
    if "module" not in data:
        return {key: standin(each) for key, each in data.items()}
    made = type(data["type"], (), {"__module__": data["module"]})()
    for key, each in data.items():
        if key not in ("module", "type"):
            setattr(made, key, standin(each))
    return made
