"""The structure of the package: which folder may import which, no circles of imports, and one subject for one file."""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from wpriv.core import registry

ROOT = Path(__file__).parents[1] / "wpriv"
# from the ground up; a folder imports from itself and from lower floors, never from a folder beside it
FLOORS = (
    ("_version", "hints"),
    ("errors",),
    # the ground: numbers, files, the vocabulary of processes, recipes, results folders
    ("numerics", "files", "verify", "transport", "spec"),
    ("core", "randomness", "strategies"),
    ("config", "figures"),
    ("results",),
    # the calculator
    ("accounting/pld", "accounting/mechanisms"),
    ("accounting/accountants",),
    ("accounting",),
    ("accounting/claims", "accounting/comparison", "accounting/tables", "ledger"),
    ("releases",),
    # private training
    ("training/noise", "training/data"),
    ("training/clipping", "training/models"),
    ("training/engine",),
    ("training/tasks",),
    ("training/reports",),
    ("training/local",),
    ("training",),
    ("training/audit",),
    # runs of other libraries
    ("checks",),
    ("checks/readers",),
    # what the five papers alone need
    ("papers",),
    ("papers/mechanisms",),
    ("papers/accountants", "papers/penalty"),
    ("papers/tables", "papers/tasks"),
    ("papers/reproduction",),
    # inside the programs of others
    ("opacus", "dp_accounting"),
    ("sklearn", "flower", "lightning", "transformers"),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
# the package itself loads the verbs on first use; __main__ starts the command line
ROOF = ("__init__", "__main__")
# folders that any program could import for their formulas: numpy and scipy.special are all they need
NUMERICAL = ("numerics", "files", "core", "accounting/pld", "randomness")
# what runs inside the programs of others
ADAPTERS = ("sklearn.py", "flower.py", "lightning.py", "transformers.py", "opacus.py")
# the folders with all that is in them, or the single files, that may import a library
HOMES = {
    "yaml": ("config/yaml_document.py",),
    "pydantic": ("config", "results/model.py"),
    "jinja2": ("training/reports/render.py", "ledger/page.py"),
    "pandas": ("files/csv_tables.py",),
    "torch": ("transport", "training", "papers", "files/checkpoint.py", *ADAPTERS),
    "matplotlib": ("figures", "results", "papers/reproduction"),
    "cryptography": ("randomness",),
    "rich": ("cli",),
    "typer": ("cli",),
    "joblib": ("accounting/comparison", "training"),
    "submitit": ("training/cluster.py",),
    "flint": ("verify",),
    "jsonschema": ("training/reports/report.py",),
    "safetensors": ("files/array_files.py", "training/engine/saved_weights.py"),
    "datasets": ("training/data/huggingface.py",),
    "tensorboard": ("training/metric_logs.py",),
    "mlflow": ("training/metric_logs.py",),
    "wandb": ("training/metric_logs.py",),
    "sklearn": ("sklearn",),
    "flwr": ("flower",),
    "starlette": ("ledger/page.py",),
    "uvicorn": ("ledger/page.py",),
    "sqlalchemy": ("ledger/store.py", "releases/databases.py"),
    "sqlglot": ("releases/databases.py", "releases/queries.py"),
    "pyarrow": ("releases/arrow_tables.py",),
    "opacus": ("opacus",),
    "dp_accounting": ("dp_accounting",),
}
PLD_USERS = (
    *("accounting/accountants/pld.py", "accounting/accountants/pdp.py", "accounting/other_bounds.py"),
    "papers/accountants/buckets.py",
    "ledger/charges.py",
    "ledger/growing.py",
)
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in FILES]
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in NAMES}
PLUGIN_FOLDERS = tuple(folder.replace(".", "/") for folders in registry.FOLDERS.values() for folder in folders)


def folder_of(name: str) -> str:
    """The folder of a file as FLOORS names it; a file at the root of the package is one of its own."""
    return name.rpartition("/")[0] or name.removesuffix(".py")


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


def file_of(module: str) -> str:
    """The file that ``wpriv.a.b.name`` stands for: a module, or the module that has the name; "" for the package."""
    parts = module.removeprefix("wpriv.").split(".")
    return next((MODULES[".".join(parts[:k])] for k in range(len(parts), 0, -1) if ".".join(parts[:k]) in MODULES), "")


def within(name: str, homes: tuple[str, ...]) -> bool:
    """Whether a file is one of some homes, or lies in one of them."""
    return any(name in (home, f"{home}.py") or name.startswith(f"{home}/") for home in homes)


def faults(name: str, source: str) -> list[str]:
    """The imports of a file, named from the package's root, that its place does not allow."""
    folder = folder_of(name)
    if folder in ROOF:
        return []
    if folder not in LEVEL:
        return [f"{name} stands on no floor; known are {', '.join(LEVEL)}"]
    lines = []
    for module in sorted(imported(source)):
        package = module.partition(".")[0]
        if package == "wpriv":
            other = folder_of(file_of(module))
            allowed = other == folder or LEVEL.get(other, 99) < LEVEL[folder]
            allowed &= other != "accounting/pld" or folder == other or name in PLD_USERS
        elif package in HOMES:
            allowed = within(name, HOMES[package])
        else:
            plain = package in {"numpy", *sys.stdlib_module_names} or module.startswith("scipy.special")
            allowed = plain or not within(name, NUMERICAL)
        if not allowed:
            lines.append(f"{name} imports {module}, which {folder} may not rest on")
    return lines


def a_circle(graph: dict[str, set[str]]) -> list[str]:
    """Files or folders that import each other in turn; none in a graph without a circle."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_there_are_files_to_see():
    assert len(FILES) >= 200
    folders = {folder_of(name) for name in NAMES} - set(ROOF)
    assert folders == set(LEVEL)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_imports_only_from_the_floors_below_it(path):
    assert not faults(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_no_files_and_no_folders_import_each_other():
    files: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = {}
    for name, path in zip(NAMES, FILES, strict=True):
        modules = imported(path.read_text(encoding="utf-8"))
        files[name] = {file_of(module) for module in modules if module.startswith("wpriv.")} - {name, ""}
        if folder_of(name) not in ROOF:
            others = {folder_of(other) for other in files[name]}
            folders.setdefault(folder_of(name), set()).update(others - {folder_of(name)})
    assert a_circle(files) == []
    assert a_circle(folders) == []


def test_files_that_comments_name_exist():
    texts = [path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"\b(?:wpriv|docs|tests)/[a-z0-9_/-]+\.(?:py|md)\b", text)}
    assert len(named) >= 10
    assert not [name for name in named if not (ROOT.parent / name).exists()]


def test_a_circle_is_seen():
    assert set(a_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    assert a_circle({"a": {"b"}, "b": set()}) == []


def test_a_file_name_stands_once_in_a_wing():
    """Plug-ins and commands are named by what users type, which may be the name of a verb as well."""
    rooms = (*PLUGIN_FOLDERS, "cli")
    names = Counter((name.partition("/")[0], name.rpartition("/")[2]) for name in NAMES if folder_of(name) not in rooms)
    assert {file for (_, file), count in names.items() if count > 1} <= {"__init__.py"}


def test_a_file_of_tests_has_a_name_of_its_own():
    """Otherwise pytest refuses to collect both."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert len(names) > 300
    assert not [name for name, count in names.items() if count > 1]


def test_the_house_stays_small():
    """A change that needs more lets something go."""
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in zip(NAMES, FILES, strict=True)}
    core = [name for name in NAMES if name.startswith("core/")]
    assert len(core) <= 22
    assert sum(lines[name] for name in core) <= 5_815
    assert len([name for name in NAMES if lines[name]]) <= 415
    assert sum(lines.values()) <= 98_561


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core/x.py", "from wpriv.accounting import load_recipe"),
        ("core/x.py", "import scipy.optimize"),
        ("core/x.py", "from scipy import special, stats"),
        ("core/x.py", "import pydantic"),
        ("training/tasks/x.py", "from pydantic import Field"),
        ("training/x.py", "import yaml"),
        ("accounting/mechanisms/x.py", "def f():\n    from wpriv.accounting.accountants.pld import account"),
        ("accounting/accountants/rdp.py", "from wpriv.accounting.pld.composition import Composition"),
        ("accounting/x.py", "from wpriv.accounting.claims import decide"),
        ("training/x.py", "from wpriv.papers.penalty import penalty"),
        ("training/x.py", "from wpriv import cli"),
        ("accounting/x.py", "import torch"),
        ("cli/x.py", "import matplotlib.pyplot"),
        ("training/data/x.py", "import pandas"),
        ("training/x.py", "from rich.progress import Progress"),
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
            "accounting/mechanisms/x.py",
            "from wpriv.accounting.mechanisms._validation import NO_BATCH\nfrom wpriv.core.loss_pair import LossPair",
        ),
        ("accounting/accountants/pld.py", "from wpriv.accounting.pld.composition import Composition"),
        ("training/engine/x.py", "import torch\nfrom wpriv.transport import line"),
        ("cli/x.py", "from wpriv.training import train\nimport typer"),
        ("__main__.py", "from wpriv.cli.main import main"),
    ],
)
def test_an_import_from_below_is_allowed(name, source):
    assert not faults(name, source)


MECHANISMS = set(registry.names("mechanisms"))


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
        assert not any(".mechanisms." in module for module in imported(source))


def test_a_comparison_of_names_is_detected():
    for line in ("x.mechanism.name == y", 'name != "gauss"', 'name in ("a", "local-gauss")'):
        assert len(name_comparisons(line)) == 1
    assert not name_comparisons('noise.is_textbook("gauss") and knob.name == "n"')
