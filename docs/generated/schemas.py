"""Tables of keys, from JSON Schemas: those of recipes, of the options of tasks, and of ``--json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import wpriv.accounting
from wpriv.config.schema import json_schema
from wpriv.core import registry
from wpriv.training import tasks

Schema = dict[str, Any]
RECIPE = json_schema()["$defs"]
GUARANTEE = json.loads((Path(wpriv.accounting.__path__[0]) / "guarantee.schema.json").read_text())
# the name of each part, the model of a recipe that it shows, and its heading on the page of recipes
MODELS = {
    "budget": "Budget",
    "calibrate": "Calibrate",
    "check": "Check",
    "truth": "Truth",
    "compare": "Compare",
    "privatize": "Privatize",
    "release": "Release",
    "release-data": "ReleaseData",
    "release-limits": "ReleaseLimits",
    "release-by": "ReleaseKeys",
    "release-output": "ReleaseOutput",
    "train": "Train",
    "verify": "Verify",
    "published": "PublishedClaim",
    "step": "Step",
    "panel": "Panel",
    "axis": "Sweep",
    "expect": "Expect",
    "claims": "Claim",
    "time": "Time",
    "rows": "Rows",
    "data": "DataSet",
    "local-noise": "LocalNoise",
    "privacy": "Privacy",
    "optimizer": "Optimizer",
    "train-axis": "Axis",
    "model": "OwnCode",
    "init": "Weights",
    "lora": "LowRank",
    "augment": "Augment",
    "average": "Average",
    "early-stop": "EarlyStop",
    "adapt": "Adapt",
    "tune": "Tune",
    "score": "Score",
    "cluster": "Cluster",
}
ANCHORS = {
    "Step": "[step](recipe.md#keys-of-a-step)",
    "Truth": "[mapping](recipe.md#keys-of-expect-of-a-check)",
    "Panel": "[panel](recipe.md#keys-of-a-panel)",
    "Part": "keys of this table",
    "Sweep": "[axis](recipe.md#keys-of-an-axis)",
    "Expect": "[expected number](recipe.md#keys-of-expect)",
    "PublishedClaim": "[published claim](recipe.md#keys-of-a-published-claim)",
    "Claim": "[claim](recipe.md#keys-of-claims)",
    "Printed": "[mapping](recipe.md#keys-of-printed)",
    "Time": "[time](recipe.md#keys-of-time)",
    "Rows": "[data](recipe.md#keys-of-the-data-of-privatize)",
    "DataSet": "[data](recipe.md#keys-of-the-data-of-train)",
    "LocalNoise": "[local noise](recipe.md#keys-of-local-noise)",
    "ReleaseData": "[data](recipe.md#keys-of-the-data-of-release)",
    "ReleaseLimits": "[limits](recipe.md#keys-of-limits)",
    "ReleaseKeys": "[by](recipe.md#keys-of-by)",
    "ReleaseOutput": "[output](recipe.md#keys-of-an-output)",
    "Privacy": "[privacy](recipe.md#keys-of-privacy)",
    "Optimizer": "[optimizer](recipe.md#keys-of-the-optimizer)",
    "Axis": "[axis](recipe.md#keys-of-an-axis-of-trainings)",
    "OwnCode": "[name and file](recipe.md#keys-of-the-model)",
    "Weights": "[mapping](recipe.md#keys-of-init)",
    "LowRank": "[mapping](recipe.md#keys-of-lora)",
    "Augment": "[mapping](recipe.md#keys-of-augment)",
    "Average": "[mapping](recipe.md#keys-of-average)",
    "EarlyStop": "[mapping](recipe.md#keys-of-early-stop)",
    "Adapt": "[mapping](recipe.md#keys-of-adapt)",
    "Tune": "[mapping](recipe.md#keys-of-tune)",
    "Score": "[score](recipe.md#keys-of-tune)",
    "Cluster": "[mapping](recipe.md#keys-of-cluster)",
    "PluginRef": "name and parameters",
}
# keys that a table leaves out, since those of another model stand beside it
SHARED = {"Panel": "Part", "Privatize": "LocalNoise"}
WORDS = {"string": "text", "boolean": "true or false", "object": "mapping", "null": "null"}
ENDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
FAR = 2**40  # limits of counts and seeds, which say nothing about their meaning
COUNT = {"number", "string"}  # of numbers that may be written as 1e6 or 2^20


def table(schema: Schema, *, skip: Collection[str] = ()) -> str:
    """Return a table of the properties of an object: key, value, default, meaning; the source first."""
    required = schema.get("required", ())
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    properties = sorted(schema["properties"].items(), key=lambda entry: entry[0] != "source")
    for name, value in properties:
        if name not in skip:
            default = "required" if name in required else _default(value.get("default"))
            cells = (f"`{name}`", kind(value), default, value.get("description", ""))
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("$", "\\$") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def kind(schema: Schema) -> str:
    """Return the type of a value in words."""
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return _one_of(choices)
    if "$ref" in schema:
        return ANCHORS.get(schema["$ref"].rpartition("/")[2], "mapping")
    if "const" in schema or "enum" in schema:
        return _joined(f"`{word}`" for word in schema.get("enum", [schema.get("const")]))
    if isinstance(schema.get("type"), list):
        return _joined(kind({**schema, "type": word}) for word in schema["type"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"mapping of names to {kind(schema['additionalProperties'])}"
    if schema.get("type") in ("number", "integer"):
        return _number(schema)
    return WORDS.get(schema.get("type", ""), "see the meaning")


def _one_of(choices: list[Schema]) -> str:
    choices = [choice for choice in choices if choice.get("type") != "null"]
    if {choice.get("type") for choice in choices} == COUNT and choices[0].get("minimum") == 1:
        return "whole number from 1"
    return _joined(dict.fromkeys(map(kind, choices)))


def _joined(words: Any) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else str(last)


def _number(schema: Schema) -> str:
    word = "whole number" if schema["type"] == "integer" else "number"
    ends = [f"{phrase} {_plain(schema[key])}" for key, phrase in ENDS.items() if abs(schema.get(key, FAR)) < FAR]
    return " ".join([word, " and ".join(ends)]).strip()


def _default(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, list):
        return f"`[{', '.join(map(_plain, value))}]`"
    return f"`{_plain(value['name'] if isinstance(value, dict) else value)}`"


def _plain(value: Any) -> str:
    """Return a value as people write it: 60 for 60.0, 1e-9 for 1e-09, true for True."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:g}".replace("e-0", "e-")
    return str(value)


def _recipe_part(name: str) -> Callable[[], str]:
    shared = RECIPE[SHARED[name]]["properties"] if name in SHARED else {}
    # the heading of a recipe's own table is its kind
    kinds = {"kind"} if "const" in RECIPE[name]["properties"].get("kind", ()) else set[str]()
    return lambda: table(RECIPE[name], skip={*shared, *kinds})


def _options_part(task: str) -> Callable[[], str]:
    return lambda: table(tasks.load(task).options.model_json_schema())


def guarantee() -> str:
    """Return a table of the keys of a guarantee."""
    properties = {}
    for name, value in GUARANTEE["properties"].items():
        target = GUARANTEE["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else {}
        properties[name] = {**target, **value}
    lines = ["| key | value | always there | meaning |", "|---|---|---|---|"]
    for name, value in properties.items():
        value.pop("$ref", None)
        always = "yes" if name in GUARANTEE["required"] else ""
        words = "list of steps" if name == "process" else kind(value)
        lines.append(f"| `{name}` | {words} | {always} | {value['description']} |")
    return "\n".join(lines) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    **{f"keys-{part}": _recipe_part(name) for part, name in MODELS.items()},
    **{f"options-{name}": _options_part(name) for name in registry.names("tasks")},
    "keys-guarantee": guarantee,
}
