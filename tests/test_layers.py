"""The structure of the package: which room may import which, no circles of imports, and one name for one file."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "wpriv"
# from the ground up; a room imports from itself and from rooms on lower floors, never from one beside it
FLOORS = (
    ("_version", "hints"),
    ("errors",),
    ("spec",),
    ("numerics", "files", "verify"),
    ("core", "randomness"),
    ("config", "pld", "mechanisms", "data"),
    ("accountants", "transport", "models"),
    ("engine",),
    ("tasks", "tables"),
    ("figures",),
    ("run",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
# the package itself loads the verbs on first use; __main__ starts the command line
ROOF = ("__init__", "__main__")
# rooms that any program could import for its formulas: numpy and scipy.special are all they need
NUMERICAL = ("numerics", "files", "core", "pld", "randomness")
# the rooms, or the single files, that may import a library
HOMES = {
    "yaml": ("config/yaml_document.py",),
    "pydantic": ("config", "run/results/model.py"),
    "jinja2": ("run/results/render.py",),
    "pandas": ("files/csv_tables.py",),
    "torch": ("transport", "models", "engine", "tasks", "tables", "run/training/metric_logs.py"),
    "matplotlib": ("figures", "run"),
    "cryptography": ("randomness",),
    "rich": ("cli",),
    "typer": ("cli",),
    "joblib": ("run",),
    "submitit": ("run/training/cluster.py",),
    "flint": ("verify",),
    "jsonschema": ("run/results/registry_entry.py",),
    "safetensors": ("files/weight_files.py", "engine/weight_export.py"),
    "datasets": ("data/huggingface.py",),
    "tensorboard": ("run/training/metric_logs.py",),
    "mlflow": ("run/training/metric_logs.py",),
    "wandb": ("run/training/metric_logs.py",),
}
PLD_USERS = ("accountants/pld.py", "accountants/pdp.py", "run/accounting/other_bounds.py")
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in FILES]
# folders whose files are named by what users type
PLUGINS = ("mechanisms", "accountants", "data", "models", "tasks", "tables", "figures", "cli")


def imported(source: str) -> set[str]:
    """Full names of the modules that a file imports, also inside functions."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, "imports are written in full here"
            whole = node.module.partition(".")[0] == "wpriv" or node.module == "scipy"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} if whole else {node.module}
    return modules


def faults(name: str, source: str) -> list[str]:
    """The imports of a file, named from the package's root, that its place does not allow."""
    room = name.partition("/")[0].removesuffix(".py")
    if room in ROOF:
        return []
    if room not in LEVEL:
        return [f"{name} stands on no floor; known are {', '.join(LEVEL)}"]
    lines = []
    for module in sorted(imported(source)):
        package, _, rest = module.partition(".")
        other = rest.partition(".")[0]
        if package == "wpriv":
            allowed = other == room or LEVEL.get(other, 99) < LEVEL[room]
            allowed &= other != "pld" or room == "pld" or name in PLD_USERS
        elif package in HOMES:
            allowed = name in HOMES[package] or room in HOMES[package]
        else:
            plain = package in {"numpy", *sys.stdlib_module_names} or module.startswith("scipy.special")
            allowed = plain or room not in NUMERICAL
        if not allowed:
            lines.append(f"{name} imports {module}, which {room} may not rest on")
    return lines


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Files that import each other, directly or indirectly: strongly connected components (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()

    def leave(name: str) -> None:
        seen.add(name)
        for other in graph[name] - seen:
            if other not in seen:
                leave(other)
        order.append(name)

    for name in graph:
        if name not in seen:
            leave(name)
    users = {name: {other for other in graph if name in graph[other]} for name in graph}
    components = []
    while order:
        component, front = [], [order.pop()]
        while front:
            name = front.pop()
            component.append(name)
            order = [other for other in order if other != name]
            front += [other for other in users[name] if other in order and other not in front]
        components.append(component)
    return [component for component in components if len(component) > 1]


def test_there_are_files_to_see():
    assert len(FILES) >= 300
    assert {name.partition("/")[0] for name in NAMES} >= {name for name in LEVEL if (ROOT / name).is_dir()}


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_imports_only_from_the_floors_below_it(path):
    assert not faults(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_no_files_import_each_other():
    modules = {
        f"wpriv.{name.removesuffix('.py').replace('/', '.')}": path for name, path in zip(NAMES, FILES, strict=True)
    }
    graph = {}
    for module, path in modules.items():
        names = imported(path.read_text(encoding="utf-8"))
        graph[module] = {
            other for other in modules if other in names or any(name.startswith(f"{other}.") for name in names)
        }
        graph[module].discard(module)
    assert circles(graph) == []


def test_files_that_comments_name_exist():
    texts = [path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"\b(?:wpriv|docs|tests)/[a-z0-9_/-]+\.(?:py|md)\b", text)}
    assert len(named) >= 10
    assert not [name for name in named if not (ROOT.parent / name).exists()]


def test_a_circle_is_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "c", "b"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_a_file_name_stands_once_in_the_tree():
    names = Counter(name.rpartition("/")[2] for name in NAMES if name.partition("/")[0] not in PLUGINS)
    assert {name for name, count in names.items() if count > 1} == {"__init__.py"}


def test_the_core_stays_small():
    assert len(list((ROOT / "core").glob("*.py"))) <= 12


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core/x.py", "from wpriv.accounting import load_recipe"),
        ("core/x.py", "import scipy.optimize"),
        ("core/x.py", "from scipy import special, stats"),
        ("core/x.py", "import pydantic"),
        ("tasks/x.py", "from pydantic import Field"),
        ("run/x.py", "import yaml"),
        ("mechanisms/x.py", "def f():\n    from wpriv.accounting.accountants.pld import account"),
        ("accountants/rdp.py", "from wpriv.accounting.pld.composition import Composition"),
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
        (
            "core/x.py",
            "import math\nimport numpy as np\nfrom scipy.special import ndtr\nfrom wpriv.errors import UsageError",
        ),
        ("config/schema.py", "import pydantic"),
        (
            "mechanisms/x.py",
            "from wpriv.accounting.mechanisms._validation import ratio\nfrom wpriv.core.loss_pair import LossPair",
        ),
        ("accountants/pld.py", "from wpriv.accounting.pld.composition import Composition"),
        ("engine/x.py", "import torch\nfrom wpriv.transport import line"),
        ("cli/x.py", "from wpriv import accounting\nimport typer"),
        ("__main__.py", "from wpriv.cli.main import main"),
    ],
)
def test_an_import_from_below_is_allowed(name, source):
    assert not faults(name, source)


MECHANISMS = {path.stem.replace("_", "-") for path in (ROOT / "mechanisms").glob("[a-z]*.py")}


def name_comparisons(source: str) -> list[str]:
    """Comparisons with the name of a mechanism: ``mechanism.name == ...``, or of anything with a mechanism's name."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    compared = [node for node in nodes if not ast.unparse(node.left).endswith("noise.family")]  # a capability
    return [
        ast.unparse(node)
        for node in compared
        if any(
            ast.unparse(part).endswith("mechanism.name")
            or (isinstance(part, ast.Constant) and part.value in MECHANISMS)
            or (isinstance(part, ast.Tuple) and {getattr(item, "value", None) for item in part.elts} & MECHANISMS)
            for part in (node.left, *node.comparators)
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name in ("accountants", "accounting", "local")])
def test_accountants_and_verbs_compare_no_mechanism_names(path):
    """They ask for a capability (``additive_noise``, ...), so that a new mechanism needs no change to them."""
    source = path.read_text(encoding="utf-8")
    assert not name_comparisons(source)
    if path.parent.name == "accountants":
        assert not any(module.startswith("wpriv.accounting.mechanisms") for module in imported(source))


def test_a_comparison_of_names_is_detected():
    for line in ("x.mechanism.name == y", 'name != "gauss"', 'name in ("a", "local-gauss")'):
        assert len(name_comparisons(line)) == 1
    assert not name_comparisons('noise.is_textbook("gauss") and knob.name == "n"')
