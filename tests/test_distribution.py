"""The ways into other systems: hooks of pre-commit, the GitHub Action, the Dockerfile, the conda recipe, the schema.

No registry is asked and no daemon runs. The command lines of these files are executed as they stand, in a folder of
their own; pip installs without dependencies, which ``test_wheel`` covers. Whether conda's own tool accepts the recipe
is tested where ``py-rattler-build`` is installed.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from wpriv._version import __version__

ROOT = Path(__file__).parents[1]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
ENTRY = json.loads((ROOT / "schema" / "catalog-entry.json").read_text())
SCHEMA = ROOT / "schema" / "recipe.json"
PLAN = """kind: budget
source: "training plan of the recommender, version 12"
process: [{mech: gauss, sigma: 1.3, sampling: poisson, batch: 256, records: 60000, epochs: 10}]
delta: 1e-5
"""  # eps = 0.698163
# pip takes the negation of this variable, and so 0 turns the isolation off: hatchling comes from this environment
OFFLINE = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture
def folder(tmp_path):
    """A folder of a user, with a plan and a faulty plan, and a command ``wpriv``."""
    (tmp_path / "plan.wpriv.yaml").write_text(PLAN)
    (tmp_path / "bad.wpriv.yaml").write_text(PLAN.replace("sampling", "samplng"))
    (tmp_path / "bin").mkdir()
    for name, module in (("wpriv", "-m wpriv"), ("python", ""), ("pip", "-m pip")):
        command = tmp_path / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n')
        command.chmod(0o755)
    return tmp_path


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line as GitHub Actions runs it, with the commands of a user's folder."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {"PYTHONPATH": str(ROOT), **os.environ, "PATH": path, **variables}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


# ---- pre-commit


def test_the_hook_for_recipes_passes_a_sound_one_and_names_the_fault_of_another(folder):
    entry = HOOKS["wpriv-recipe"]["entry"]
    assert shell(f"{entry} plan.wpriv.yaml", folder).returncode == 0
    done = shell(f"{entry} plan.wpriv.yaml bad.wpriv.yaml", folder)
    assert done.returncode == 2
    assert "bad.wpriv.yaml:3:37: unknown key 'samplng'; did you mean 'sampling'?" in done.stderr


@pytest.mark.parametrize(("limit", "code"), [("1", 0), ("0.5", 1)])
def test_the_hook_of_the_gate_decides_by_the_limit(folder, limit, code):
    hook = HOOKS["wpriv-gate"]
    assert not hook["pass_filenames"]
    assert shell(f"{hook['entry']} plan.wpriv.yaml --max-eps {limit}", folder).returncode == code


def test_the_hooks_are_those_of_a_manifest_of_pre_commit():
    known = {"id", "name", "description", "entry", "language", "files", "pass_filenames", "always_run"}
    for hook in HOOKS.values():
        assert {"id", "name", "entry", "language"} <= set(hook) <= known
        assert hook["language"] == "python"
        assert hook["entry"].startswith("wpriv ")


def test_hooks_and_editors_take_the_same_files_for_recipes():
    for name in ("plan.wpriv.yaml", "a/b/plan.wpriv.yml", "plan.yaml", "wpriv.yaml.txt", "plan.wpriv.json"):
        by_hook = re.search(HOOKS["wpriv-recipe"]["files"], name) is not None
        assert by_hook == any(fnmatch.fnmatch(name, pattern) for pattern in ENTRY["fileMatch"])


# ---- GitHub Actions


def steps(folder: Path, **inputs: str) -> list[tuple[str, dict[str, str]]]:
    """The lines that the action runs, and their variables with the inputs filled in."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {name: inputs.get(name, entry.get("default", "")) for name, entry in action["inputs"].items()}
    values = {f"inputs.{name}": value for name, value in given.items()} | {"github.action_path": str(ROOT)}
    runner = {
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
    }
    lines = []
    for step in action["runs"]["steps"]:
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # what users give is passed by variables, where no shell can run it
            filled = {
                name: re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda part: values[part[1]], text)
                for name, text in step["env"].items()
            }
            lines.append((step["run"], {**runner, **filled}))
    return lines


@pytest.mark.parametrize(("limit", "code", "words"), [("1", 0, "keeps"), ("0.5", 1, "exceeds")])
def test_the_action_gates_a_recipe_and_reports_eps(folder, limit, code, words):
    line, variables = steps(folder, **{"recipe": "plan.wpriv.yaml", "max-eps": limit})[1]
    assert shell(line, folder, **variables).returncode == code
    output = dict(entry.split("=", 1) for entry in (folder / "output").read_text().splitlines())
    assert 0.698 < float(output["epsilon"]) < 0.6982
    assert json.loads(Path(output["guarantee"]).read_text())["claim"] == "certified"
    assert f"{words} the limit of {limit}" in (folder / "summary").read_text()


def test_the_action_gates_a_history(folder):
    (folder / "history.json").write_text('{"history": [[1.3, 0.004, 2000]], "mechanism": "prv"}')
    line, variables = steps(folder, **{"history": "history.json", "delta": "1e-5", "max-eps": "1"})[1]
    done = shell(line, folder, **variables)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("inputs", [{}, {"recipe": "missing.yaml"}, {"recipe": "$(touch hacked)"}], ids=str)
def test_the_action_fails_where_nothing_was_checked(folder, inputs):
    line, variables = steps(folder, **{**inputs, "max-eps": "1"})[1]
    assert shell(line, folder, **variables).returncode in (2, 4)
    assert not (folder / "output").exists()
    assert not (folder / "hacked").exists()


@pytest.mark.slow
def test_the_action_installs_wpriv_from_its_own_checkout(folder):
    line, variables = steps(folder, **{"max-eps": "1"})[0]
    done = shell(line, folder, **OFFLINE, **variables, PIP_TARGET=str(folder / "site"))
    assert done.returncode == 0, done.stderr
    assert (folder / "site" / "wpriv" / "recipes").is_dir()


# ---- Docker


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, in order: the word, and the rest of the line."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def copy(old: Path, new: Path) -> None:
    """Copy a file or a folder as Docker does, which leaves out what .dockerignore names."""
    if old.is_dir():
        shutil.copytree(old, new, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(old, new)


@pytest.mark.slow
def test_the_lines_of_the_dockerfile_build_the_wheel_from_what_they_copy_and_install_it(folder):
    variables = {**OFFLINE, "PIP_TARGET": str(folder / "site")}
    source, wheels = folder / "src", folder / "dist"
    source.mkdir()
    for word, rest in instructions():
        if word == "COPY" and rest.startswith("--from"):
            shutil.copytree(source / "dist", wheels)
        elif word == "COPY":
            for name in rest.split()[:-1]:
                copy(ROOT / name, source / name)
        elif word == "ARG":
            name, _, value = rest.partition("=")
            variables[name] = value.strip('"')
        elif word == "RUN" and not rest.startswith("useradd"):
            place = shlex.quote(str(folder if wheels.exists() else source))
            done = shell(f"cd {place}; {rest.replace('/tmp/dist', str(wheels))}", folder, **variables)
            assert done.returncode == 0, done.stderr
    version = shell("python -m wpriv --version", folder, PYTHONPATH=str(folder / "site"))
    assert version.stdout.split() == ["wpriv", __version__]
    assert (folder / "site" / "wpriv" / "recipes" / "quick" / "digits.yaml").exists()


def test_the_image_runs_the_command_and_not_as_root():
    lines = instructions()
    assert ("ENTRYPOINT", '["wpriv"]') in lines
    assert lines.index(("USER", "wpriv")) < lines.index(("ENTRYPOINT", '["wpriv"]'))
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = {name for word, rest in lines if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]}
    assert ignored[0] == "*"
    assert {name.removeprefix("!") for name in ignored if name.startswith("!")} == copied


# ---- conda


def test_the_conda_recipe_requires_what_the_wheel_requires():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = {"matplotlib": "matplotlib-base"}  # conda-forge's package without the toolkits of windows
    split = (re.fullmatch(r"([\w-]+)(>=.+)", line) for line in project["project"]["dependencies"])
    wanted = [f"{names.get(part[1], part[1])} {part[2]}" for part in split if part]
    assert sorted(recipe["requirements"]["run"]) == sorted([f"python {project['project']['requires-python']}", *wanted])
    assert recipe["context"]["version"] == __version__
    assert recipe["build"]["python"]["entry_points"] == [f"wpriv = {project['project']['scripts']['wpriv']}"]
    assert recipe["about"]["license_file"] == project["project"]["license-files"]


def test_conda_can_render_the_recipe():
    rattler_build = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    (variant,) = rattler_build.Stage0Recipe.from_file(str(ROOT / "conda" / "recipe.yaml")).render()
    assert (variant.recipe.package.name, variant.recipe.package.version) == ("wpriv", __version__)


def test_the_command_that_the_conda_recipe_tests_succeeds(folder):
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    (line,) = next(test["script"] for test in recipe["tests"] if "script" in test)
    done = shell(line, folder)
    assert (done.returncode, done.stdout) == (0, "117.97295\n")


# ---- the schema of recipes


def test_the_schema_under_its_stable_path_is_the_one_that_is_printed(folder):
    assert shell("wpriv recipe schema", folder).stdout == SCHEMA.read_text()
    assert ENTRY["url"].endswith(f"/main/{SCHEMA.relative_to(ROOT)}")


def test_the_schema_accepts_the_plan_and_no_misspelt_one(folder):
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    plan = yaml.safe_load(PLAN) | {"delta": 1e-5}
    assert validator.is_valid(plan)
    assert not validator.is_valid({**plan, "detla": 1e-5})
