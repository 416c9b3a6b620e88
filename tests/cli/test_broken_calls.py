"""Thousands of broken calls, drawn from fixed seeds: never a traceback, a bug, a result or an exit code of 0.

Every call is a sound one with something broken in it: a flag, a recipe, a file of results. What a mutation leaves sound by chance (a
flipped byte in a comment) may be answered; what is broken for certain must be refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from wpriv.cli.main import main

REFUSED = {2, 3, 4}
SHARDS = range(8)
FLAGS, RECIPES, FILES = 160, 80, 30  # broken calls of each kind in a shard: 2,160 in all

CALLS = [
    "budget --mech gauss --sigma 4 --delta 1e-5",
    "budget --mech gauss --sigma 4 --n 100 --eps 1 --accountant gdp",
    "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100 --delta 1e-5 --accountant rdp",
    "budget --mech gauss --sigma 4 --sampling fixed --batch 10 --records 100 --epochs 2 --delta 1e-5 --accountant rdp",
    "budget --mech laplace --scale 20 --n 10 --eps 3 --accountant basic --json",
    "budget --mech randomized-response --param eps0=0.5 --n 10 --delta 1e-5 --accountant kov --csv",
    "budget --mech gauss --sigma 4 --sensitivity 2 --adjacency add-remove --delta 1e-5 --max-eps 9 --quiet",
    "budget --mech gauss --sigma 4 --delta 1e-5 --accountant gdp --accountant zcdp --explain",
    "calibrate --mech gauss --eps 1 --delta 1e-5 --n 10 --accountant gdp",
    "calibrate --mech laplace --eps 1 --delta 1e-5 --n 10 --accountant basic --tol 1e-2",
    "compare --mech gauss --sigma 4 --delta 1e-5 --n 5 --accountant gdp",
    "compare --mech gauss --sigma 4 --eps 1 --sweep n=1,2 --accountant gdp",
    "compare --mech gauss --sigma 4 --sampling poisson --rate 0.1 --n 3 --delta 1e-5 --why",
    "privatize --data x.npy --mech local-gauss --radius 4 --eps 3 --delta 1e-4 --out new.npz",
    "privatize --data x.npy --mech local-laplace --radius 4 --eps 3 --out new.npz --dry-run",
    "train quick/digits --dry-run --out new",
    "train quick/digits --set privacy.eps=1 --dry-run --out new",
    "recipe show quick/digits",
    "recipe cp plc/fig5-gauss new",
    "recipe check plc/fig5-gauss",
    "data show table --param file=people.csv --param target=income",
    "plot nowhere --format png",
]
NO_NUMBERS = [
    "abc",
    "",
    " ",
    "1,5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1/0",
    "0/0",
    "9^9999",
    "0x10",
    "--",
    "1e",
    "½",
    "1 2",
    "None",
    "\0",
    "\ud800",
]
OUT_OF_RANGE = {
    "--sigma": ["0", "-1", "-1e-300"],
    "--scale": ["0", "-3"],
    "--sensitivity": ["0", "-1"],
    "--n": ["0", "-1", "1.5", "2^41", "1e300"],
    "--epochs": ["0", "-1", "1e300"],
    "--rate": ["0", "-0.1", "1.0001", "7"],
    "--batch": ["0", "-1", "101", "1.5"],
    "--records": ["0", "-1", "0.5"],
    "--delta": ["0", "1", "-1e-5", "2"],
    "--eps": ["-1", "-1e-9"],
    "--tol": ["0", "-1", "0.9", "1e-12"],
    "--radius": ["0", "-1"],
}
NAMES = {
    "--mech": ["gaus", "pld", "", "..", "gauss/../laplace", "_mixture", "__init__", "ğauss", "gauss:sigma=1"],
    "--accountant": ["pdl", "gauss", "", "_x", "rdp:order", "wdp:order=x", "gdp:order=3", "all,pld", "wdp:variant=", "pld:"],
    "--sampling": ["poison", "", "shuffle", "0", "poisson,fixed"],
    "--adjacency": ["sideways", "", "0", "add"],
    "--sweep": [
        "n",
        "n=",
        "=1",
        "nope=1",
        "n=1,x",
        "n=linspace:1",
        "n=linspace:1,2,1e9",
        "n=nope:1,2,3",
        "n=1e9999",
        "sigma=0",
        "mech=gauss",
    ],
    "--param": ["", "=", "a=b", "sigma", "n=3", "eps0", "eps0=", "eps0=x", "eps0=-1", "sigma=4"],
    "--set": [
        "",
        "=",
        "a=b",
        "privacy.eps",
        "privacy.eps=",
        "privacy.eps=x",
        "privacy..eps=1",
        "a.b.c=1",
        "privacy=7",
        "epochs=[",
        "seed=-1",
    ],
    "--format": ["", "gif", ",", "png;pdf"],
    "--data": ["nope", "", "mnist:nope", "nowhere.npy", ".", "x.npy:test", "\0", "table"],
}
WORDS = ["stray", "--nope", "--nope=1", "-x", "--", "-", "--json=1", "\0", "\ud800", "--sigma=", "é" * 300, "a" * 5000]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A folder with sound files, in which all calls run."""
    path = tmp_path_factory.mktemp("broken")
    np.save(path / "x.npy", np.arange(12.0).reshape(4, 3) / 12)
    (path / "people.csv").write_text("age,income\n" + "".join(f"{20 + k},{k % 2}\n" for k in range(20)))
    home = Path.cwd()
    os.chdir(path)
    try:
        yield path
    finally:
        os.chdir(home)


def run(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def require(words: list[str], *, certain: bool) -> None:
    """Run a broken call, and hold it to what no call may do."""
    code, out, err = run(words)
    case = f"{words!r}: exit code {code}\n{out[:500]}\n{err[:2000]}"
    assert "Traceback" not in out + err, case
    answered = set() if certain else {0, 1}  # 1: what is expected of a number was changed
    assert code in REFUSED | answered, case
    if code not in answered:
        assert out == "", case
        assert err.startswith("wpriv: "), case
        assert len(err) < 12_000, case


def broken_flags(rng: random.Random) -> list[str]:
    """A sound call with something broken in its flags for certain."""
    words = shlex.split(rng.choice(CALLS))
    valued = [i for i, word in enumerate(words[:-1]) if word.startswith("--") and not words[i + 1].startswith("--")]
    numbers = [i for i in valued if words[i] in OUT_OF_RANGE or words[i] == "--max-eps"]
    named = [i for i in valued if words[i] in NAMES]
    ranged = [i for i in numbers if words[i] in OUT_OF_RANGE]
    needed = [i for i in valued if words[i] in ("--mech", "--sigma", "--scale", "--radius", "--rate", "--data")]
    single = [i for i in valued if words[i] not in ("--accountant", "--param", "--set", "--sweep")]
    places = {
        "number": numbers,
        "range": ranged,
        "name": named,
        "missing": needed,
        "cut": valued,
        "twice": single,
        "command": [0],
        "stray": [0],
    }
    kind = rng.choice([kind for kind, where in places.items() if where])
    place = rng.choice(places[kind])
    if kind == "number":
        words[place + 1] = rng.choice(NO_NUMBERS)
    elif kind == "range":
        words[place + 1] = rng.choice(OUT_OF_RANGE[words[place]])
    elif kind == "name":
        words[place + 1] = rng.choice(NAMES[words[place]])
    elif kind == "missing":
        if words[0] == "calibrate" or (words[0] == "compare" and words[place] == "--rate"):
            place = words.index("--mech")
        del words[place : place + 2]
    elif kind == "cut":
        words = words[: place + 1]
    elif kind == "twice":
        words += words[place : place + 2]
    elif kind == "command":
        words[0] = rng.choice([words[0][:-1], words[0] + "X", "", "\0", "../budget", "help", "main"])
    else:
        words.insert(rng.randrange(1, len(words) + 1), rng.choice(WORDS))
        words += ["stray"] if {"-", "--"} & set(words) else []
    return words


BUDGET = """kind: budget
source: "a paper"
process:
  - {mech: gauss, sigma: 4, sampling: poisson, rate: 0.01, n: 100}
  - {mech: laplace, scale: 20}
adjacency: add-remove
accountants: [rdp]
delta: 1e-5
"""
CALIBRATE = """kind: calibrate
process: [{mech: gauss, n: 10}]
accountants: [gdp]
eps: 1
delta: 1e-5
"""
COMPARE = """kind: compare
source: "a paper"
process: [{mech: gauss, sigma: 4}]
accountants: [gdp, zcdp]
eps: 1
sweep: {over: n, values: {geomspace: [1, 100, 3]}}
figure: delta-over-n
limits: {x: [1, 100]}
expect: [{where: {n: 1, accountant: gdp}, delta: 2.92e-6, within: 0.5, source: "a paper"}]
quick: {sweep: {over: n, values: [1]}}
"""
PANELS = """kind: compare
source: "a paper"
eps: 1
accountants: [gdp]
panels:
  - name: left
    process: [{mech: gauss, sigma: 4}]
  - name: right
    cases: {one: [{mech: gauss, sigma: 3}], two: [{mech: gauss, sigma: 2}]}
"""
TABLE = """kind: compare
source: "a paper"
table: class
process: [{mech: randomized-response, eps0: 1}]
"""
PRIVATIZE = """kind: privatize
source: "a paper"
data: {file: x.npy, limit: 3}
mech: local-gauss
radius: 4
eps: 3
delta: 1e-4
"""
RECIPES_BY_VERB = [
    (["budget"], BUDGET),
    (["calibrate"], CALIBRATE),
    (["compare", "--out", "compared-{}"], COMPARE),
    (["compare", "--out", "compared-{}"], PANELS),
    (["compare", "--out", "compared-{}"], TABLE),
    (["privatize", "--dry-run"], PRIVATIZE),
    (["train", "--dry-run", "--out", "trained-{}"], ""),  # quick/digits
    (["recipe", "check"], BUDGET),
    (["recipe", "show"], COMPARE),
]
VALUES = [
    "nope", "''", "-1", "0", "1e400", ".nan", "inf", "[]", "{}", "[[[]]]", "{a: b}", "true", "null", "2^2000",
    "1" * 50, "'\\0'", '"\\0"', "&a 1", "*a", "!!python/object/apply:os.system [ls]", "!x y", "2024-01-01",
    "0x1F", "1_0", "é", "[1, 2", "{a", "'", '"', "|", "- - -", "{linspace: [1, 2, 3]}", "{powers: [2, 0, 99]}",
    "[nan]", "../../x", "~", "yes", "1e-400", "@", "%", "`", "? a",
]  # fmt: skip
KEYS = ["nope", "Kind", "''", "process", "eps", "delta", "sigma", "quick", "1", "é", "<<", "sweep", "panels"]


def broken_recipe(text: str, rng: random.Random) -> tuple[bytes, bool]:
    """The bytes of a recipe with something broken, and whether that is so for certain."""
    lines = text.splitlines()
    kind = rng.choice(["value", "value", "value", "key", "twice", "bytes", "encoding", "cut", "nest", "second", "tab", "drop", "mix"])
    if kind == "value":
        places = [i for i, char in enumerate(text) if char == ":" and text[i + 1 : i + 2] == " "]
        place = rng.choice(places) + 2
        end = min(text.find(stop, place) if text.find(stop, place) >= 0 else len(text) for stop in (",", "}", "]", "\n"))
        return (text[:place] + rng.choice(VALUES) + text[end:]).encode(errors="replace"), False
    if kind == "key":
        return (text + f"{rng.choice(KEYS[:4])}x: 1\n").encode(), True
    if kind == "twice":
        return (text + next(line for line in lines if line.startswith("kind")) + "\n").encode(), True
    if kind == "bytes":
        return _damaged(text.encode(), rng), False
    if kind == "encoding":
        return (f"# ü\n{text}").encode(rng.choice(["utf-16", "latin-1", "utf-32"])), True
    if kind == "nest":
        return (text + "x: " + "[" * rng.choice([20, 500, 100_000])).encode(), True
    if kind == "second":
        return f"{text}---\n{text}".encode(), True
    if kind == "tab":
        return f"{text}\tx: 1\n".encode(), True
    if kind == "drop":
        return (
            "\n".join(line for line in lines if not line.startswith(("kind", "process", "mech", "task", "panels", "table"))) + "\n"
        ).encode(), True
    if kind == "mix":
        return text.replace(
            lines[0], rng.choice(["kind: nope", "kind: [budget]", "kind: 7", "kind: ", "kinds: budget", "- kind: budget"])
        ).encode(), True
    return text[: rng.randrange(1, len(text) // 3)].encode(), False


def _damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes that are changed, removed, added or cut off somewhere."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(content)) if content else 0
        how = rng.choice(["flip", "drop", "add", "cut", "zero", "swap"])
        if how == "flip" and content:
            content[place] ^= 1 << rng.randrange(8)
        elif how == "drop":
            del content[place : place + rng.choice([1, 4, 100])]
        elif how == "add":
            content[place:place] = rng.choice([b"\xff", b"\0", b'"', b",", b"nan", b"-", b"\n", b"9" * 400, b"[" * 3000, b"\r", b"e999"])
        elif how == "cut":
            del content[place:]
        elif how == "zero":
            content[place : place + 8] = bytes(len(content[place : place + 8]))
        else:
            content[place : place + 40] = reversed(content[place : place + 40])
    return bytes(content)


@pytest.fixture(scope="module")
def files(folder):
    """Sound files of every kind that a verb reads, each with the calls that read it and whether any change makes it unsound."""
    again = ["train", "quick/digits", "--set", "epochs=1", "--set", "expect=[]", "--out", "run"]
    compared = ["compare", "--mech", "gauss", "--sigma", "4", "--eps", "1", "--sweep", "n=1,2,4", "--accountant", "gdp", "--out", "done"]
    local = ["privatize", "--data", "x.npy", "--mech", "local-gauss", "--radius", "4", "--eps", "3", "--delta", "1e-4"]
    for words in (again, compared, [*local, "--out", "p.npz"]):
        assert run(words)[0] == 0
    (folder / "steps.json").write_text(json.dumps([[1.0, 0.01, 100], {"mech": "gauss", "sigma": 2, "n": 3}]))
    (folder / "pair.csv").write_text("outcome,p,q\n0,0.5,0.4\n1,0.3,0.35\n2,0.2,0.25\n")
    np.savez(folder / "seen.npz", distances=np.array([0.5, 1.0]), coordinates=3)
    (folder / "seen.csv").write_text("step,distance\n1,0.5\n1,0.7\n")
    price = ["--delta", "1e-5", "--accountant", "rdp"]
    seen = ["budget", "--mech", "gauss", "--sigma", "4", "--n", "1", "--delta", "1e-5", "--accountant", "bdp", "--observed"]
    report = ["data", "show", "privatized", "--param", "file=p.npz", "--param", "test=digits"]
    return [
        ("steps.json", ["budget", "--history", "steps.json", *price], False),
        ("run/ledger.jsonl", ["budget", "--history", "run/ledger.jsonl", *price], True),
        ("run/statement.json", ["budget", "--history", "run/ledger.jsonl", *price], False),
        ("run/statement.json", again, False),
        ("run/recipe.yaml", again, False),
        ("run/metrics.csv", ["plot", "run", "--out", "drawn"], False),
        ("run/model.pt", again, False),
        ("run/ledger.jsonl", again, True),
        ("done/table.csv", ["plot", "done/table.csv", "--out", "drawn"], False),
        ("done/cells.jsonl", compared, False),
        ("done/recipe.yaml", compared, False),
        ("done/recipe.yaml", ["plot", "done", "--out", "drawn"], False),
        ("pair.csv", ["budget", "--mech", "histogram", "--param", "file=pair.csv", "--delta", "0.1"], False),
        ("seen.npz", [*seen, "seen.npz"], False),
        ("seen.csv", [*seen, "seen.csv"], False),
        ("people.csv", ["data", "show", "table", "--param", "file=people.csv", "--param", "target=income"], False),
        ("x.npy", [*local, "--dry-run"], False),
        ("p.npz", report, False),
        ("p.npz", ["plot", "p.npz", "--out", "drawn"], False),
    ]  # fmt: skip


@pytest.mark.parametrize("shard", SHARDS)
def test_broken_flags_are_refused(shard):
    rng = random.Random(shard)
    for _ in range(FLAGS):
        require(broken_flags(rng), certain=True)


@pytest.mark.parametrize("shard", SHARDS)
def test_broken_recipes_are_refused(shard, folder):
    rng = random.Random(1000 + shard)
    digits = (Path(__file__).parents[2] / "recipes" / "quick" / "digits.yaml").read_text()
    for number in range(RECIPES):
        words, text = rng.choice(RECIPES_BY_VERB)
        content, certain = broken_recipe(text or digits, rng)
        (folder / "broken.yaml").write_bytes(content)
        name = f"{shard}-{number}"
        require([*(word.format(name) for word in words), "broken.yaml"], certain=certain)
        for made in (f"compared-{name}", f"trained-{name}"):
            shutil.rmtree(folder / made, ignore_errors=True)


@pytest.mark.parametrize("shard", SHARDS)
def test_damaged_files_are_refused_or_answered_but_never_called_a_bug(shard, folder, files):
    rng = random.Random(2000 + shard)
    for _ in range(FILES):
        name, words, certain = rng.choice(files)
        whole = (folder / name).read_bytes()
        content = rng.choice(
            [_damaged(whole, rng), _damaged(whole, rng), rng.choice([b"", b"\0" * 9, b"PK\x03\x04", b"[]", b"\xff\xfe\0"])]
        )
        try:
            (folder / name).write_bytes(content)
            require(words, certain=certain and content != whole)
        finally:
            (folder / name).write_bytes(whole)


def test_the_broken_calls_are_many():
    assert len(SHARDS) * (FLAGS + RECIPES + FILES) >= 2000


def test_the_calls_that_are_broken_here_are_sound_before(folder):
    sound: Iterator[list[str]] = (shlex.split(line) for line in CALLS if not line.startswith("plot"))
    for words in sound:
        code, _, err = run(words)
        assert code == 0, (words, err)
        for path in (folder / "new", folder / "new.npz", folder / "new.statement.json", folder / "new.statement.md"):
            remove: Callable[[Path], None] = shutil.rmtree if path.is_dir() else lambda file: file.unlink(missing_ok=True)
            remove(path)
