"""Sessions in fresh environments: ``nox -s fast``, ``nox -s lint tests``, ``nox -l`` lists them."""

import tomllib
from pathlib import Path

import nox

nox.options.sessions = ["lint", "fast"]
nox.options.default_venv_backend = "venv"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
TORCH = "torch==2.13.0"
# the packages of each library whose files the tests of readers read, in the versions of these files
GOLDEN = {
    "dp_accounting": ("dp-accounting==0.6.0", "attrs<24"),
    "jax_privacy": ("jax-privacy==2.0.0", "keras"),
    "tensorflow_privacy": ("dp-accounting==0.6.0", "attrs<24"),
    "flower": ("flwr[dp]==1.42.0",),
    "transformers": ("transformers==5.24.0", "accelerate", TORCH),
    "dptrainer": ("transformers==5.24.0", "accelerate", "datasets", "opacus==1.6.0", TORCH),
    "opake": ("opake==0.16.1", "opake-transformers==0.16.1", TORCH),
    "opacus": ("opacus==1.6.0", TORCH),
    "lightning": ("lightning==2.6.6", "opacus==1.6.0", TORCH),
}
# read or installed without what they ask for: TensorFlow, and a version of Opacus that is not on PyPI
ALONE = {"tensorflow_privacy": "tensorflow-privacy==0.9.0", "dptrainer": "DPTrainer==0.1.2"}


def lowest_requirements() -> list[str]:
    """The declared dependencies, each pinned to the lowest version that pyproject.toml allows."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    return [line.partition(",")[0].replace(">=", "==") for line in lines]


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("-e", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def fast(session: nox.Session) -> None:
    """The tests that take about a minute together."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """The tests that README runs, with the newest versions of what wpriv needs."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """All tests with every case and all examples, also those that the default run leaves out."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs, env={"WPRIV_NIGHTLY": "1"})


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """The fast tests with the lowest versions that are declared."""
    session.install("-e", ".[test]", *lowest_requirements())
    session.run("python", "-m", "pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """The wheel alone, in an environment without the sources."""
    session.install("build")
    folder = session.create_tmp()
    session.run("python", "-m", "build", "--wheel", "--outdir", folder)
    wheel = next(Path(folder).glob("*.whl")).resolve()
    session.install(str(wheel))
    session.chdir(folder)
    session.run("wpriv", "calibrate", "--mech", "gauss", "--eps", "1", "--delta", "1e-5", "--n", "1000")
    session.install(f"{wheel}[train]")
    session.run("wpriv", "train", "quick/digits", "--out", "run")


@nox.session
def docs(session: nox.Session) -> None:
    """The site, in docs/_build/html, without warnings; its generated parts must be up to date."""
    session.install("-e", ".[docs]")
    session.run("python", "docs/generate.py", "--check")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html", *session.posargs)
    session.run("python", "docs/browser/build.py")  # needs npm


@nox.session
def bench(session: nox.Session) -> None:
    """wpriv beside other libraries; see ``python -m benchmarks --help``."""
    session.install("-e", ".[bench]")
    session.run("python", "-m", "benchmarks", *session.posargs, env=ONE_THREAD)


@nox.session(python="3.12")
@nox.parametrize("library", list(GOLDEN))
def golden(session: nox.Session, library: str) -> None:
    """Write again the files of other libraries that the tests of readers read, each by the library itself."""
    session.install(*GOLDEN[library])
    folder = session.create_tmp()
    if library in ALONE:
        session.run("pip", "download", "--no-deps", "--dest", folder, ALONE[library])
        wheel = str(next(Path(folder).glob("*.whl")).resolve())
        session.env["GOLDEN_WHEEL"] = wheel
        if library == "dptrainer":
            session.install("--no-deps", wheel)
    session.run("python", "tests/golden/checks/write.py", library, env={"KERAS_BACKEND": "jax", **ONE_THREAD})
