"""A floor of the package imports only from the floors below it; core needs numpy and scipy.special alone.

The floors stand in this list from the ground up; plug-ins of one floor never import another's.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "wpriv"
FLOORS = (("errors",), ("core",), ("mechanisms", "accountants"), ("transport",), ("train",), ("tasks",), ("figures",), ("run",), ("cli",))
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
# the package itself holds the version and loads the verbs on first use; __main__ starts the command line
ROOFS = ("__init__", "__main__")
PARSERS = {"core/document.py": {"yaml"}, "core/schema.py": {"pydantic"}, "core/recipe.py": {"pydantic"}}
FILES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Full names of all modules that a file imports, also inside functions; of ``from wpriv.core import grid`` both readings' common part."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full here"
            assert node.module is not None
            deeper = node.module in ("wpriv", "scipy")
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if deeper else {node.module}
    return found


def floor_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_files_to_see():
    assert len(FILES) >= 40
    assert {floor_of(path) for path in FILES} >= {"errors", "core", "mechanisms", "accountants", "figures", "run", "cli"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_stands_on_a_known_floor_and_imports_only_from_below(path):
    own = floor_of(path)
    if own in ROOFS:
        return
    assert own in LEVEL, f"{name_of(path)} stands on no floor; known are {', '.join(LEVEL)}"
    for module in imported(path):
        package, _, rest = module.partition(".")
        other = rest.partition(".")[0]
        if package != "wpriv" or other in ("__version__", own):
            continue
        assert LEVEL.get(other, 99) < LEVEL[own], f"{name_of(path)} imports {module}; {own} may not rest on {other}"


@pytest.mark.parametrize("path", [p for p in FILES if floor_of(p) == "core"], ids=name_of)
def test_core_imports_the_standard_library_numpy_and_scipy_special(path):
    allowed = {"numpy", "wpriv"} | PARSERS.get(name_of(path), set()) | sys.stdlib_module_names
    foreign = {m for m in imported(path) if m.partition(".")[0] not in allowed and not m.startswith("scipy.special")}
    assert not foreign, f"{name_of(path)} imports {', '.join(sorted(foreign))}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_torch_and_matplotlib_stay_on_their_own_floors(path):
    at_home = {"torch": ("transport", "train", "tasks"), "matplotlib": ("figures", "run")}
    for module in imported(path):
        package = module.partition(".")[0]
        assert floor_of(path) in at_home.get(package, (floor_of(path),)), f"{name_of(path)} imports {module}"
