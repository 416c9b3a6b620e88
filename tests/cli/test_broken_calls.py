"""Thousands of broken calls, drawn from fixed seeds: never a traceback, a bug, a result or an exit code of 0.

Every call is a sound one with something broken in it: a flag, a recipe, a file of results. What a mutation leaves sound
by chance (a flipped byte in a comment) may be answered; what is broken for certain must be refused.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import nightly
from tests.cli.mutations import CALLS, RECIPES_BY_VERB, broken_flags, broken_recipe, damaged
from tests.command_line import call_alone as run
from tests.command_line import ends_in_error
from tests.points import ROOT

pytestmark = pytest.mark.slow

REFUSED = {2, 3, 4}
SHARDS = range(8)
FLAGS, RECIPES, FILES = 160, 80, 12  # broken calls of each kind in a shard: 2,016 in all


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


def require(words: list[str], *, certain: bool) -> None:
    """Run a broken call, and hold it to what no call may do."""
    code, out, err = run(words)
    case = f"{words!r}: exit code {code}\n{out[:500]}\n{err[:2000]}"
    assert "Traceback" not in out + err, case
    answered = set() if certain else {0, 1}  # 1: what is expected of a number was changed
    assert code in REFUSED | answered, case
    if code not in answered:
        assert out == "", case
        assert ends_in_error(err, words, code), case
        assert len(err) < 12_000, case


@pytest.fixture(scope="module")
def files(folder):
    """Valid files of every kind that a verb reads, with the calls that read them and whether any change is an error."""
    again = ["train", "quick/digits", "--set", "epochs=1", "--set", "expect=[]", "--out", "run"]
    compared = shlex.split("compare --mech gauss --sigma 4 --eps 1 --sweep n=1,2,4 --accountant gdp --out done")
    local = ["privatize", "--data", "x.npy", "--mech", "local-gauss", "--radius", "4", "--eps", "3", "--delta", "1e-4"]
    for words in (again, compared, [*local, "--out", "p.npz"]):
        assert run(words)[0] == 0
    (folder / "steps.json").write_text(json.dumps([[1.0, 0.01, 100], {"mech": "gauss", "sigma": 2, "n": 3}]))
    (folder / "pair.csv").write_text("outcome,p,q\n0,0.5,0.4\n1,0.3,0.35\n2,0.2,0.25\n")
    np.savez(folder / "seen.npz", distances=np.array([0.5, 1.0]), coordinates=3)
    (folder / "seen.csv").write_text("step,distance\n1,0.5\n1,0.7\n")
    price = ["--delta", "1e-5", "--accountant", "rdp"]
    seen = shlex.split("budget --mech gauss --sigma 4 --n 1 --delta 1e-5 --accountant bdp --observed")
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


@pytest.mark.parametrize("shard", nightly.sharded(SHARDS, 8))
def test_broken_flags_are_refused(shard):
    rng = random.Random(shard)
    for _ in range(FLAGS):
        require(broken_flags(rng), certain=True)


@pytest.mark.parametrize("shard", nightly.sharded(SHARDS, 4))
def test_broken_recipes_are_refused(shard, folder):
    rng = random.Random(1000 + shard)
    digits = (ROOT / "recipes" / "quick" / "digits.yaml").read_text()
    for number in range(RECIPES):
        words, text = rng.choice(RECIPES_BY_VERB)
        content, certain = broken_recipe(text or digits, rng)
        (folder / "broken.yaml").write_bytes(content)
        name = f"{shard}-{number}"
        require([*(word.format(name) for word in words), "broken.yaml"], certain=certain)
        for made in (f"compared-{name}", f"trained-{name}"):
            shutil.rmtree(folder / made, ignore_errors=True)


@pytest.mark.parametrize("shard", nightly.sharded(SHARDS, 4))
def test_damaged_files_are_refused_or_answered_but_never_called_a_bug(shard, folder, files):
    rng = random.Random(2000 + shard)
    for _ in range(FILES):
        name, words, certain = rng.choice(files)
        whole = (folder / name).read_bytes()
        content = rng.choice(
            [
                damaged(whole, rng),
                damaged(whole, rng),
                rng.choice([b"", b"\0" * 9, b"PK\x03\x04", b"[]", b"\xff\xfe\0"]),
            ]
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
            remove: Callable[[Path], None] = (
                shutil.rmtree if path.is_dir() else lambda file: file.unlink(missing_ok=True)
            )
            remove(path)
