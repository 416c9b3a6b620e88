"""The wheel does what the README shows, with nothing beside it but the packages that it declares.

The wheel is installed alone into a fresh virtual environment. What it and its extra ``train`` declare, and what those
packages declare in turn, is linked into that environment from the one that runs the tests: nothing is downloaded, and
an import that no declaration covers fails.

At night the commands of README run there, in an empty folder. ``test_documentation`` compares what they print; here
they only have to end with the exit code that README shows.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from email.parser import HeaderParser
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.documents import README, blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
OPTIONAL = {
    "pywt": "wavelets",
    "jsonschema": "registry",
    "datasets": "datasets",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "submitit": "slurm",
    "sklearn": "sklearn",
    "flwr": "flower",
    "lightning": "lightning",
    "accelerate": "llm",
    "transformers": "llm",
    "peft": "llm",
    "opacus": "opacus",
    "dp_accounting": "dp-accounting",
    "sqlalchemy": "ledger",
    "starlette": "ledger-serve",
    "uvicorn": "ledger-serve",
    "psycopg": "postgres",
    "pyarrow": "release",
    "sqlglot": "release",
}  # imported behind a message that names the extra
# modules that go by another name than their distribution
NAMES = {"PIL": "pillow", "yaml": "pyyaml", "flint": "python-flint"}
GRID = """kind: train
source: s
task: classify
data: {name: digits, limit: 200}
model: {name: logistic}
privacy: none
optimizer: {name: sgd, lr: 0.5}
batch: 50
steps: 3
seed: 1
sweep: [{over: seed, values: [1, 2]}]
"""


def closure(requirements: list[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions that requirements name, and those that these require, by canonical name."""
    found: dict[str, metadata.Distribution] = {}
    done = set()
    todo = [(requirement, "") for requirement in requirements]
    while todo:
        text, extra = todo.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        found[name] = metadata.distribution(name)
        assert requirement.specifier.contains(found[name].version, prereleases=True), (
            f"{requirement} found {found[name].version}"
        )
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in done:
                done.add((name, wanted))
                todo += [(more, wanted) for more in found[name].requires or []]
    return found


def link(distribution: metadata.Distribution, others: set[Path], target: Path) -> None:
    """Link the files of a distribution into a folder; folders shared with ``others`` are linked file by file."""
    for file in distribution.files or []:
        if ".." in file.parts or "__pycache__" in file.parts or file.suffix == ".pth":
            continue
        depth = next(
            (depth for depth in range(1, len(file.parts)) if Path(*file.parts[:depth]) not in others), len(file.parts)
        )
        place = target.joinpath(*file.parts[:depth])
        if not place.is_symlink() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(Path(str(distribution.locate_file(""))).joinpath(*file.parts[:depth]).resolve())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built without a download where hatchling is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    isolated = ["--no-build-isolation"] if find_spec("hatchling") else []
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        *isolated,
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("wpriv-*.whl")
    return path


def declared(wheel: Path, *extras: str) -> list[str]:
    """The requirements of the wheel, and those of some of its extras."""
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(name).decode())
    lines = [Requirement(text) for text in headers.get_all("Requires-Dist", [])]
    chosen = [
        line
        for line in lines
        if line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]
    return [f"{line.name}{line.specifier}" for line in chosen]


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """A function that runs a line of shell where the wheel and its extra ``train`` are installed."""
    return environment(wheel, tmp_path_factory.mktemp("fresh"), "train")


@pytest.fixture(scope="module")
def calculator(wheel, tmp_path_factory):
    """A function that runs a line of shell where the wheel is installed without extras."""
    return environment(wheel, tmp_path_factory.mktemp("calculator"))


def environment(wheel: Path, home: Path, *extras: str) -> Callable[[str, Path], tuple[int, str]]:
    """Make a virtual environment with the wheel and what it declares; return what runs a line of shell in it."""
    venv.create(home / "venv", with_pip=False)
    (site,) = (home / "venv").glob("lib/python*/site-packages")
    allowed = closure(declared(wheel, *extras))
    others = {
        parent
        for other in metadata.distributions()
        if canonicalize_name(other.metadata["Name"]) not in allowed
        for file in other.files or []
        for parent in Path(file).parents
    }
    for distribution in allowed.values():
        link(distribution, others, site)
    python = home / "venv" / "bin" / "python"
    install = ["pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True)
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    env["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"

    def run(line: str, folder: Path) -> tuple[int, str]:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, cwd=folder, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_wheel_holds_every_recipe_the_digits_and_their_licence(wheel):
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata_name = next(name for name in names if name.endswith("/METADATA"))
        licences = HeaderParser().parsestr(archive.read(metadata_name).decode()).get_all("License-File", [])
    recipes = [path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.yaml")]
    assert len(recipes) >= 70
    assert {f"wpriv/{name}" for name in recipes} <= names
    assert {"wpriv/training/data/digits.csv.gz", "wpriv/training/data/digits.LICENSE.txt", "wpriv/py.typed"} <= names
    data_sets = {f"wpriv/training/data/{name}.LICENSE.txt" for name in ("digits", "docstrings")}
    assert set(licences) == {"LICENSE", "wpriv/ledger/templates/htmx.LICENSE.txt", *data_sets}


def test_every_import_of_the_package_is_declared_and_every_declaration_is_imported(wheel):
    modules = set()
    files = sorted((ROOT / "wpriv").rglob("*.py"))
    assert len(files) > 200
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            modules |= {name.partition(".")[0] for name in names}
    modules -= {"wpriv", *sys.stdlib_module_names, *OPTIONAL}
    wanted = {canonicalize_name(Requirement(text).name) for text in declared(wheel, "train")}
    assert {canonicalize_name(NAMES.get(module, module)) for module in modules} == wanted


def test_what_is_declared_can_be_installed_together(wheel):
    """The check of ``pip check``, for the packages of the wheel: each is there, in a version that all of them allow."""
    assert {"torch", "joblib", "numpy", "pydantic-core"} <= set(closure(declared(wheel, "train")))
    assert not {"torch", "joblib", "safetensors"} & set(closure(declared(wheel)))


def test_the_fresh_environment_has_what_is_declared_and_nothing_else(fresh, tmp_path):
    # what a sweep imports; a package that is not declared is not even found
    program = "import importlib.util as u; print([name for name in {!r} if u.find_spec(name)])"
    declared_names = ["torch", "joblib", "pandas", "rich", "matplotlib"]
    others = ["sklearn", "pywt", "pytest", "hypothesis", "ot"]
    assert fresh(f'python -c "{program.format(declared_names + others)}"', tmp_path) == (0, f"{declared_names}\n")
    code, printed = fresh("python -c 'import wpriv; print(wpriv.__file__)'", tmp_path)
    assert code == 0
    assert "site-packages" in printed


def test_the_calculator_needs_no_torch(calculator, tmp_path):
    """``pip install .`` alone answers, compares, privatises and plans; what trains says what to install."""
    assert "ModuleNotFoundError" in calculator("python -c 'import torch'", tmp_path)[1]
    (tmp_path / "people.csv").write_text("20,0\n40,1\n" * 5)
    report = "--data people.csv --mech local-laplace --radius 50 --eps 1 --out noisy.npz"
    code, printed = calculator("wpriv budget --mech gauss --sigma 4 --n 100 --delta 1e-4", tmp_path)
    assert code == 0, printed
    lines = (
        "calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000",
        "compare --mech gauss --sigma 4 --n 10 --eps 1 --accountant all --out compared",
        "verify --claim eps=9,delta=1e-5 --mech gauss --sigma 1",
        "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 999 --delta 1e-4 --certificate c.json",
        "verify c.json",
        f"privatize {report}",
        "recipe check quick/digits",
    )
    # in one process, which starts once
    (tmp_path / "commands.py").write_text(
        f"from wpriv.cli.main import main\nassert not any(main(line.split()) for line in {lines!r})\n"
    )
    code, printed = calculator("python commands.py", tmp_path)
    assert code == 0, printed
    in_python = "python -c \"import wpriv; wpriv.train('quick/digits', out='run')\""
    for line, status in (("wpriv train quick/digits --out run", 4), (in_python, 1)):
        code, printed = calculator(line, tmp_path)
        assert code == status, printed
        assert "pip install 'wpriv[train]'" in printed
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly  # by default README runs in test_documentation, and single commands run in the environments here
def test_commands_of_the_readme_run_in_a_fresh_environment(fresh, tmp_path):
    commands = [pair for block in blocks(README) if block.language in ("console", "sh") for pair in block.commands()]
    for line, shown in ((part, shown) for whole, shown in commands for part in whole.split(" && ")):
        if line.startswith(("pip ", "python ")):
            continue
        code = int(shown.split()[-1]) if line.endswith("; echo $?") else 0
        status, printed = fresh(line.removesuffix("; echo $?"), tmp_path)
        assert status == code, printed


@pytest.mark.nightly
def test_python_of_the_readme_runs_in_a_fresh_environment(fresh, tmp_path):
    sessions = [block.text for block in blocks(README) if block.language == "python" and ">>>" in block.text]
    assert sessions
    for place, text in enumerate(sessions):
        (tmp_path / f"{place}.txt").write_text(text)
    code, printed = fresh("python -m doctest -o ELLIPSIS *.txt", tmp_path)
    assert code == 0, printed


@pytest.mark.nightly  # that joblib is declared is tested above, and sweeps in two processes in tests/cli
def test_a_sweep_in_two_processes_runs_in_a_fresh_environment(fresh, tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    code, printed = fresh("wpriv train grid.yaml --jobs 2", tmp_path)
    assert code == 0, printed
    assert len((tmp_path / "results" / "grid" / "table.csv").read_text().splitlines()) == 3
