"""Which mechanism is defined and proven under which neighbours and sampling, and which accountant covers it."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

from wpriv.cli import catalog
from wpriv.core import registry
from wpriv.core.kinds import PASSES, STANDARD_ADJACENCIES, Adjacency

CSV = "outcome,p,q\n0,0.5,0.4\n1,0.3,0.35\n2,0.2,0\n3,0,0.25\n"
# examples of the mechanisms that read a file; the others have their own
FILES = {"histogram": "pair.csv", "rdp-curve": "rdp.csv"}
RDP_CSV = "order,epsilon\n1.5,0.3\n2,0.4\n4,0.9\n16,3\n"


def mechanisms() -> str:
    """Return a table of the mechanisms: parameters, and neighbouring relations for each sampling."""
    with _ExampleFolder():
        names = registry.names("mechanisms")
        kinds = (*catalog.LETTERS, *PASSES)
        lines = [
            f"| mechanism | parameters | without sampling | {' | '.join(kinds[1:])} |",
            "|---" * (len(kinds) + 2) + "|",
        ]
        for name in names:
            cls = registry.mechanism(name)
            fields = ", ".join(map(_parameter, dataclasses.fields(cls)))
            relations = tuple(dict.fromkeys((*STANDARD_ADJACENCIES, *cls.adjacencies)))
            # under zero-out a mechanism has what it has under add-remove, and shuffled batches besides
            asked = {kind: (Adjacency.ZERO_OUT,) if kind == "shuffle" else relations for kind in kinds}
            example = _example(name)
            cells = [
                ", ".join(a for a in asked[kind] if catalog.process(example, kind, a)) or "refused" for kind in kinds
            ]
            lines.append(f"| `{name}` | {fields} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def accountants() -> str:
    """Return a table of the accountants: claim, and the samplings covered for each mechanism."""
    with _ExampleFolder():
        names = registry.names("mechanisms")
        examples = [_example(name) for name in names]
        lines = [f"| accountant | claim | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
        for accountant in registry.names("accountants"):
            module = registry.load("accountants", accountant)
            claim = module.CLAIM if module.NOTION == "approximate-dp" else f"{module.CLAIM}, {module.NOTION}"
            cells = [catalog.letters(accountant, example) for example in examples]
            lines.append(f"| `{accountant}` | {claim} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


class _ExampleFolder:
    """A temporary current folder that holds the tables of the examples of ``histogram`` and ``rdp-curve``."""

    def __enter__(self) -> None:
        self.before, self.folder = os.getcwd(), tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        Path("pair.csv").write_text(CSV)
        Path("rdp.csv").write_text(RDP_CSV)

    def __exit__(self, *error: object) -> None:
        os.chdir(self.before)
        self.folder.cleanup()


def _parameter(field: dataclasses.Field) -> str:
    """Return a parameter with its default; in brackets where it may be left out and then follows from the others."""
    if field.default is None:
        return f"[{field.name}]"
    if field.default is dataclasses.MISSING:
        return field.name
    default = field.default if isinstance(field.default, str) else format(field.default, "g")
    return f"{field.name}={default}"


def _example(name: str) -> Any:
    return registry.mechanism(name)(file=FILES[name]) if name in FILES else catalog.example(name)


PARTS = {"mechanisms": mechanisms, "accountants": accountants}
