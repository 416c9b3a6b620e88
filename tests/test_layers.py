"""A room of the package imports only from the rooms below it; numerics, core and pld need numpy and scipy.special alone.

The floors stand in FLOORS from the ground up; those side by side (mechanisms and accountants) never import each other.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "wpriv"
FLOORS = (
    ("errors",),
    ("numerics", "files"),
    ("core",),
    ("pld",),
    ("mechanisms", "accountants", "data"),
    ("transport", "models"),
    ("train",),
    ("tasks",),
    ("tables",),
    ("figures",),
    ("run",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
# the package itself holds the version and loads the verbs on first use; __main__ starts the command line
ROOF = ("__init__", "__main__")
PARSERS = {
    "core/document.py": {"yaml"},
    **{f"core/{name}.py": {"pydantic"} for name in ("fields", "schema", "schema_train", "faults")},
    "files/csv_tables.py": {"pandas"},
}
AT_HOME = {
    "torch": ("transport", "models", "train", "tasks", "tables"),
    "matplotlib": ("figures", "run"),
    "cryptography": ("train",),
    "pandas": (),  # files/csv_tables.py alone: see PARSERS
    "rich": ("cli",),
    "joblib": ("run",),
}
FILES = sorted(ROOT.rglob("*.py"))


def imported(source: str) -> set[str]:
    """Full names of the modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, "imports are written in full here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module in ("wpriv", "scipy") else {node.module}
    return found


def faults(name: str, source: str) -> list[str]:
    """The imports of a file, named from the package's root, that its floor does not allow."""
    own = name.partition("/")[0].removesuffix(".py")
    if own in ROOF:
        return []
    if own not in LEVEL:
        return [f"{name} stands on no floor; known are {', '.join(LEVEL)}"]
    found = []
    for module in sorted(imported(source)):
        package, _, rest = module.partition(".")
        other = rest.partition(".")[0]
        if package == "wpriv":
            allowed = other in ("__version__", own) or LEVEL.get(other, 99) < LEVEL[own]
        elif own in ("numerics", "files", "core", "pld"):
            plain = package in {"numpy", *PARSERS.get(name, set()), *sys.stdlib_module_names}
            allowed = plain or module.startswith("scipy.special")
        else:
            allowed = own in AT_HOME.get(package, (own,))
        if not allowed:
            found.append(f"{name} imports {module}, which {own} may not rest on")
    return found


def test_there_are_files_to_see():
    assert len(FILES) >= 60
    assert {path.relative_to(ROOT).parts[0] for path in FILES} >= {"core", "mechanisms", "accountants", "figures", "run", "cli"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_imports_only_from_the_floors_below_it(path):
    assert not faults(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core/x.py", "from wpriv.run import build"),
        ("core/x.py", "import scipy.optimize"),
        ("core/x.py", "from scipy import special, stats"),
        ("core/x.py", "import pydantic"),
        ("mechanisms/x.py", "def f():\n    from wpriv.accountants.pld import account"),
        ("accountants/x.py", "import wpriv.mechanisms.gauss"),
        ("run/x.py", "from wpriv import cli"),
        ("run/x.py", "import torch"),
        ("cli/x.py", "import matplotlib.pyplot"),
        ("data/x.py", "import pandas"),
        ("run/x.py", "from rich.progress import Progress"),
        ("attic/x.py", ""),
    ],
)
def test_an_import_from_above_is_seen(name, source):
    assert len(faults(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core/x.py", "import math\nimport numpy as np\nfrom scipy.special import ndtr\nfrom wpriv.errors import UsageError"),
        ("core/schema.py", "import pydantic"),
        ("mechanisms/x.py", "from wpriv.mechanisms._checks import ratio\nfrom wpriv.core.loss_pair import LossPair"),
        ("train/x.py", "import torch\nfrom wpriv.transport import line"),
        ("cli/x.py", "from wpriv import __version__, run\nimport typer"),
        ("__main__.py", "from wpriv.cli.main import main"),
    ],
)
def test_an_import_from_below_is_allowed(name, source):
    assert not faults(name, source)
