"""The faults and the right runs of recipes/claims/libraries, as tables."""

from __future__ import annotations

from wpriv.checks import bank
from wpriv.checks.premises import FIELDS
from wpriv.config import yaml_document


def _rows(letter: str) -> str:
    """Return the runs whose names begin with a letter: what went wrong, printed eps, that of what ran, where seen."""
    lines = ["| recipe | what ran | printed | eps of what ran | seen in |", "|---|---|---|---|---|"]
    for path in bank.files_of("claims/libraries"):
        if not path.stem.startswith(letter):
            continue
        data = yaml_document.read(path).data
        claim, expect = data["claim"], data["expect"]
        printed = f"{claim['eps']:g}" if "eps" in claim else f"rho {claim['rho']:g}"
        ends = expect.get("eps")
        words = [] if ends in (None, "none") else [f"{end:g}" for end in ends]
        truth = f"[{', '.join(words)}]" if len(words) == 2 else f"at least {words[0]}" if words else ""
        truth = "no finite eps" if ends == "none" else truth
        lines.append(f"| `{path.stem}` | {data['title']} | {printed} | {truth} | {data['seen']} |")
    return "\n".join(lines) + "\n"


def _premises() -> str:
    """Return a table of the premises: name, values, and what each is."""
    lines = ["| premise | value | what it is |", "|---|---|---|"]
    for name, field in FIELDS.items():
        value = " or ".join(f"`{word}`" for word in field.words) if field.words else FORMS[field.form]
        lines.append(f"| `{name}` | {value} | {field.about} |")
    return "\n".join(lines) + "\n"


FORMS = {
    "number": "number",
    "numbers": "number, or a list",
    "count": "whole number",
    "yes": "yes or no",
    "text": "text",
    "texts": "list of names",
    "steps": "list of [steps](recipe.md#keys-of-a-step)",
    "best": "whole number, or no",
}
PARTS = {"premises-of-a-check": _premises, "bank-faults": lambda: _rows("f"), "bank-right-runs": lambda: _rows("r")}
