"""Heavy packages load only where they are used; each claim is checked in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wpriv

pytestmark = pytest.mark.slow

HEAVY = ("torch", "pandas", "matplotlib", "scipy.stats", "scipy.optimize", "scipy.signal")
SNIFF = """
import json, sys
sys.argv = ["wpriv", *{argv!r}]
code = 0
try:
    from wpriv.cli.main import main
    code = main()
except SystemExit as end:
    code = end.code
print("\\n" + json.dumps([code or 0, sorted(sys.modules)]))
"""


def loaded_by(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def loaded_by_command(*argv: str) -> set[str]:
    code, modules = loaded_by(SNIFF.format(argv=list(argv)))
    assert code == 0, f"wpriv {' '.join(argv)} ended with {code}"
    return set(modules)


@pytest.mark.parametrize(
    "argv",
    [
        ("--version",),
        ("--help",),
        ("budget", "--help"),
        ("calibrate", "--help"),
        ("data", "--help"),
        ("privatize", "--help"),
        ("verify", "--help"),
        ("explain", "--help"),
        ("report", "--help"),
    ],
    ids=" ".join,
)
def test_version_and_help_load_no_numpy(argv):
    assert not loaded_by_command(*argv) & {"numpy", "scipy", *HEAVY}


@pytest.mark.parametrize(
    "argv",
    [
        "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4",
        "budget --mech laplace --scale 20 --n 1000 --eps 3 --json",
        "budget --mech gauss --sigma 4 --delta 1e-4 --accountant all",
        "calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000",
        "explain eps=3,delta=1e-5",
    ],
)
def test_budget_calibrate_and_explain_load_nothing_heavy(argv):
    modules = loaded_by_command(*argv.split())
    assert "numpy" in modules  # the figures come from somewhere: this is not an empty process
    assert not modules & {*HEAVY, "flint", "pydantic"}  # typer would load pydantic to read a flag of the type Path


def test_reading_data_loads_no_torch(tmp_path):
    (tmp_path / "people.csv").write_text("age,income\n" + "20,0\n40,1\n" * 5)
    modules = loaded_by_command(
        "data", "show", "table", "--data-root", str(tmp_path), "--param", "file=people.csv", "--param", "target=income"
    )
    assert "wpriv.training.data.table" in modules
    assert not modules & set(HEAVY)


def test_privatising_loads_no_torch(tmp_path):
    (tmp_path / "people.csv").write_text("20,0\n40,1\n" * 5)
    asked = f"--data {tmp_path}/people.csv --mech local-laplace --radius 50 --eps 1 --out {tmp_path}/noisy.npz"
    modules = loaded_by_command("privatize", *asked.split())
    assert (tmp_path / "noisy.npz").is_file()
    assert not modules & {*HEAVY, "scipy.fft"}


def test_a_private_sliced_distance_loads_no_torch():
    call = "wpriv.private_sliced_distance([[0.1, 0.2]], [[0.3, 0.1]], directions=2, sigma=2, delta=1e-5)"
    modules = set(loaded_by(f"import wpriv, sys, json; {call}; print(json.dumps(sorted(sys.modules)))"))
    assert "wpriv.papers.sliced_distance" in modules
    assert not modules & set(HEAVY)


def test_importing_wpriv_loads_neither_numpy_nor_its_own_floors():
    modules = set(loaded_by("import wpriv, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert "wpriv" in modules
    assert {m for m in modules if m.startswith(("numpy", "wpriv."))} == {"wpriv._version"}


WITHOUT_POSIX = """
import json, os, signal, sys
from pathlib import Path
sys.modules |= dict.fromkeys({blocked!r})
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGPIPE", "SIGTSTP", "SIGKILL"):
    delattr(signal, name)
for name in ("fork", "getuid", "geteuid", "getpgid", "killpg", "sched_getaffinity", "statvfs"):
    delattr(os, name)
import wpriv
from wpriv.cli.main import main
from wpriv.errors import MissingResource
from wpriv.files.durable_writes import locked
wpriv.budget("gauss", sigma=4, n=10, delta=1e-5)
codes = [main(line.split()) for line in {lines!r}]
try:
    with locked(Path("here/.lock"), "busy"):
        refusal = None
except MissingResource as error:
    refusal = str(error)
print("\\n" + json.dumps([codes, refusal]))
"""


def test_the_calculator_needs_no_module_of_posix_alone(tmp_path, monkeypatch):
    """As on Windows and in WebAssembly; what needs a lock says so."""
    monkeypatch.chdir(tmp_path)
    blocked = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "posixshmem", "readline", "syslog")
    lines = (
        "budget --mech gauss --sigma 4 --delta 1e-4",
        "calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000",
        "explain eps=3,delta=1e-5",
        "compare --mech gauss --sigma 4 --n 10 --eps 1 --accountant pld --accountant rdp --out compared",
        "verify --claim eps=9,delta=1e-5 --mech gauss --sigma 1",
    )
    codes, refusal = loaded_by(WITHOUT_POSIX.format(blocked=blocked, lines=lines))
    assert codes == [0] * len(lines)
    assert "no POSIX file locks" in refusal
    assert [path.name for path in tmp_path.iterdir()] == ["compared"]


TRAINED = """
import json, sys
from wpriv.cli.main import main

HEAVY = ("torch", "torch._dynamo", "torch.distributed.tensor", "sympy", "matplotlib")
rows = []
for further in (["--dry-run"], []):
    assert main(["train", "quick/digits", "--quick", "--set", "epochs=1", "--out", "out", *further]) == 0
    rows.append([name for name in HEAVY if name in sys.modules])
print("\\n" + json.dumps(rows))
"""


def test_a_dry_run_of_a_shipped_recipe_loads_no_torch_and_a_training_not_its_compiler(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loaded_by(TRAINED) == [[], ["torch", "matplotlib"]]
    assert loaded_by(TRAINED)[1] == [], "the folder is finished"


WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
import numpy as np
import wpriv
from wpriv.cli.main import main
from wpriv.errors import MissingResource

calls = (
    lambda: wpriv.train("quick/digits", out="a"),
    lambda: wpriv.train(None, ([[1.0]], [0])),
    lambda: wpriv.train_all("quick/digits", seeds=2, out="b"),
    lambda: wpriv.audit("quick/digits", out="c"),
    lambda: wpriv.training_loop(None, ([[1.0]], [0]), out="d"),
    lambda: wpriv.image_features(np.zeros((1, 1, 8, 8))),
)
texts = []
for call in calls:
    try:
        call()
    except MissingResource as error:
        texts.append(str(error))
codes = [main([verb, "quick/digits", "--out", "e"]) for verb in ("train", "audit")]
print("\\n" + json.dumps([texts, codes]))
"""


def test_verbs_that_need_torch_name_the_extra_and_leave_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts, codes = loaded_by(WITHOUT_TORCH)
    assert len(texts) == 6
    sentence = "needs the Python package torch, which is not installed: pip install 'wpriv[train]'"
    assert all(text.endswith(sentence) for text in texts)
    assert codes == [4, 4]
    assert not list(tmp_path.iterdir())


def test_the_stub_has_the_names_of_the_table():
    stub = Path(wpriv.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    found = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.M)
    imported = {name: module for module, name in found}
    assert imported.pop("__version__") == "wpriv._version"
    assert imported == wpriv._HOMES
