"""Which mechanism is defined and proven under which neighbours and sampling, and which accountant covers it."""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from pathlib import Path

from wpriv.core import registry
from wpriv.core.kinds import PASSES, STANDARD_ADJACENCIES, Adjacency, Sampling
from wpriv.core.pair_distances import Observed, of_distances
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError

CSV = "outcome,p,q\n0,0.5,0.4\n1,0.3,0.35\n2,0.2,0\n3,0,0.25\n"
EXAMPLES: dict[str, dict[str, object]] = {
    "discrete-gauss": {"sigma": 0.8},
    "discrete-laplace": {"scale": 0.9},
    "dp": {"eps0": 0.7, "delta0": 1e-5},
    "exponential": {"eps0": 0.5},
    "gauss": {"sigma": 1.3},
    "gauss-threshold": {"sigma": 2.0, "threshold": 9.0},
    "gdp": {"mu": 0.8},
    "histogram": {"file": "pair.csv"},
    "laplace": {"scale": 0.7},
    "laplace-threshold": {"scale": 1.0, "threshold": 12.0},
    "local-gauss": {"sigma": 1.3, "radius": 0.5},
    "local-laplace": {"scale": 0.7, "radius": 0.5},
    "matrix-gauss": {"sigma": 3.0, "strategy": "prefix:n=20", "separation": 7},
    "projection": {"d": 20, "k": 5, "sigma": 1.0},
    "randomized-response": {"eps0": 1.2},
    "rdp-curve": {"file": "rdp.csv"},
    "truncated-gauss": {"sigma": 1.0, "bound": 2.5},
    "truncated-laplace": {"scale": 1.0, "bound": 3.0},
    "uniform": {"outcomes": 10},
    "wgrad": {"sigma": 1.0, "bound": 1.0, "lipschitz_x": 1.0, "size_x": 8, "size_z": 8},
    "zcdp": {"rho": 0.2},
}
RDP_CSV = "order,epsilon\n1.5,0.3\n2,0.4\n4,0.9\n16,3\n"
OBSERVED = of_distances([0.5, 1.0, 1.5], coordinates=10)
KINDS = {"none": "N", "poisson": "P", "fixed": "F"}


def mechanisms() -> str:
    """Return a table of the mechanisms: parameters, and neighbouring relations for each sampling."""
    with _ExampleFolder():
        names = registry.names("mechanisms")
        assert set(names) == set(EXAMPLES), f"give every mechanism an example in {__file__}"
        kinds = (*KINDS, *PASSES)
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
            cells = [", ".join(a for a in asked[kind] if _process(name, kind, a)) or "refused" for kind in kinds]
            lines.append(f"| `{name}` | {fields} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def accountants() -> str:
    """Return a table of the accountants: claim, and the samplings covered for each mechanism."""
    with _ExampleFolder():
        names = registry.names("mechanisms")
        lines = [f"| accountant | claim | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
        for accountant in registry.names("accountants"):
            module = registry.load("accountants", accountant)
            claim = module.CLAIM if module.NOTION == "approximate-dp" else f"{module.CLAIM}, {module.NOTION}"
            cells = [_samplings(accountant, name) for name in names]
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


def _process(name: str, kind: str, adjacency: str = "", observed: Observed | None = None) -> Process | None:
    mechanism = registry.mechanism(name)(**EXAMPLES[name])
    try:
        n, rate = 10 if kind in PASSES else 2, 1.0 if kind == "none" else 0.1
        return Process((Step(mechanism, n, Sampling(kind, rate), observed),), adjacency)
    except (Unsupported, UsageError):
        return None


def _samplings(accountant: str, name: str) -> str:
    """Return letters of the samplings for which an accountant answers, perhaps only with observed distances."""
    for observed, note in ((None, ""), (OBSERVED, " observed")):
        processes = {letter: _process(name, kind, observed=observed) for kind, letter in KINDS.items()}
        letters = "".join(letter for letter, process in processes.items() if _answers(accountant, process))
        if letters:
            return letters + note
    return "-"


def _answers(accountant: str, process: Process | None) -> bool:
    if process is None:
        return False
    try:
        delta = registry.load("accountants", accountant).account(process).at(eps=1.0).delta
    except Unsupported:
        return False
    return math.isfinite(delta.estimate)


PARTS = {"mechanisms": mechanisms, "accountants": accountants}
