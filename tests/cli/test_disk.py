"""Tests of full disks, wrong paths and damaged files: every verb names the file and sets the exit code."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import forked
from wpriv.cli.main import main
from wpriv.files import durable_writes

COMPARE = ["compare", "plc/fig5-gauss", "--quick", "--quiet"]
TRAIN = ["train", "quick/digits", "--set", "epochs=1", "--set", "expect=[]"]
PRIVATIZE = [
    "privatize",
    "--data",
    "digits",
    "--mech",
    "local-gauss",
    "--radius",
    "4",
    "--eps",
    "3",
    "--delta",
    "1e-4",
    "--limit",
    "9",
]
SWEEP = [
    "train",
    "quick/digits",
    "--set",
    "epochs=1",
    "--set",
    "expect=[]",
    "--set",
    "sweep=[{over: seed, values: [0, 1]}]",
]
WRITERS = {
    "compare": [*COMPARE, "--out", "{}/new/c"],
    "cp": ["recipe", "cp", "plc/fig5-gauss", "{}/new/x"],
    "privatize": [*PRIVATIZE, "--out", "{}/new/x.npz"],
    "train": [*TRAIN, "--out", "{}/new/t"],
    "sweep": [*SWEEP, "--out", "{}/new/s"],
    "plot": ["plot", "TABLE", "--out", "{}/new/p"],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    assert main([*COMPARE, "--out", str(folder / "c")]) == 0
    return folder / "c" / "table.csv"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert main([*TRAIN, "--out", str(folder / "t")]) == 0
    return folder / "t"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    assert main([*SWEEP, "--out", str(folder / "s")]) == 0
    return folder / "s"


def words(verb, folder, table):
    return [str(table) if word == "TABLE" else word.replace("{}", str(folder)) for word in WRITERS[verb]]


# what a full disk looks like to a process: no file may have more than a few bytes
NO_FILE_GROWS = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))"


@pytest.mark.slow
@pytest.mark.parametrize("verb", [verb for verb in WRITERS if verb != "sweep"])
def test_a_file_that_cannot_be_written_is_an_error_of_the_environment_that_names_it(tmp_path, table, verb):
    # else the interpreter would leave a cut bytecode file of wpriv, which no later process could load
    before = f"{NO_FILE_GROWS}; import sys; sys.dont_write_bytecode = True"
    reading, writing = os.pipe()
    line = words(verb, tmp_path, table)
    child = forked.start(line, out=writing, err=writing, folder=tmp_path, environment=os.environ, before=before)
    os.close(writing)
    with os.fdopen(reading) as printed:
        text = printed.read()
    assert forked.end(child) == 4, text
    assert "Traceback" not in text
    assert str(tmp_path / "new") in text.splitlines()[-1]
    assert not [
        path for path in tmp_path.rglob("*") if path.suffix in (".png", ".npz", ".yaml") and path.stat().st_size == 0
    ]


@pytest.mark.parametrize("verb", [verb for verb in WRITERS if verb != "sweep"])
@pytest.mark.parametrize("root", ["/sys/wpriv", "/wpriv-there-is-no-such-folder"])
def test_a_folder_that_nobody_may_create_is_refused_before_any_work(capsys, table, verb, root):
    if not Path("/sys").is_dir():
        pytest.skip("there is no /sys here")
    code = main(words(verb, root, table))
    out, err = capsys.readouterr()
    # in the root of the file system nothing is created, whoever asks; below /sys nobody may write
    assert code == (4 if root.startswith("/sys") else 2), err
    assert out == ""
    assert root in err
    assert not Path(root).exists()


@pytest.mark.slow
@pytest.mark.parametrize("verb", list(WRITERS))
@pytest.mark.parametrize(
    "place", ["a\0b", "file", "file/below", "n" * 300, "\udcff/\ud800", "/proc/wpriv", "/dev/null/below"]
)
def test_a_path_that_can_be_no_place_for_results_is_refused_in_one_line(tmp_path, table, capsys, verb, place):
    (tmp_path / "file").write_text("a file\n")
    (tmp_path / "file.npz").write_text("a file\n")
    words = [str(table) if word == "TABLE" else word for word in WRITERS[verb]]
    ending = ".npz" if verb == "privatize" and place != "file/below" else ""
    code = main([*words[:-1], f"{tmp_path / place}{ending}"])
    out, err = capsys.readouterr()
    assert code in (2, 4), err
    assert out == ""
    assert len([line for line in err.splitlines() if not line.startswith("wpriv: training")]) == 1
    assert (tmp_path / "file").read_text() == "a file\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", list(WRITERS))
def test_every_verb_creates_the_folders_that_are_missing(tmp_path, table, verb):
    assert main(words(verb, tmp_path, table)) == 0
    assert any(path.is_file() for path in (tmp_path / "new").rglob("*"))


def test_recipe_cp_takes_a_name_without_yaml_as_a_folder(tmp_path, capsys):
    for to, file in (
        ("new", "new/fig5-gauss.yaml"),
        ("deep/er/mine.yaml", "deep/er/mine.yaml"),
        ("deep", "deep/fig5-gauss.yaml"),
    ):
        assert main(["recipe", "cp", "plc/fig5-gauss", str(tmp_path / to)]) == 0
        assert (tmp_path / file).is_file()
        assert main(["recipe", "check", str(tmp_path / file)]) == 0
    assert main(["recipe", "cp", "plc/fig5-gauss", str(tmp_path / "new")]) == 2
    assert "exists" in capsys.readouterr().err


DAMAGES = {
    "a byte that is no text": lambda line: b"\xff\xfe" + line,
    "rows that are none": lambda line: json.dumps({**json.loads(line), "rows": 7}).encode(),
    "rows of something else": lambda line: json.dumps({**json.loads(line), "rows": [{"a": 1}]}).encode(),
    "another number": lambda line: line.replace(b'"epsilon": 0.', b'"epsilon": 1.'),
    "no mapping": lambda line: b"[]",
    "a line cut short": lambda line: line[: len(line) // 2],
    "nesting without end": lambda line: b"[" * 100_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_cells_that_were_damaged_are_computed_again(tmp_path, table, damage):
    folder = tmp_path / "c"
    shutil.copytree(table.parent, folder)
    lines = (folder / "cells.jsonl").read_bytes().splitlines()
    (folder / "cells.jsonl").write_bytes(b"\n".join([*(DAMAGES[damage](line) for line in lines[:3]), *lines[3:], b""]))
    assert main([*COMPARE, "--out", str(folder)]) == 0
    assert (folder / "table.csv").read_bytes() == table.read_bytes()


def damage_model(path: Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "other code":
        path.write_bytes(pickle.dumps({"a": os.system}))
    elif how == "other tensors":
        torch.save({"format": "wpriv.checkpoint/4", "a": torch.zeros(2)}, path)
    else:
        path.write_bytes(
            {"empty": b"", "text": b"hello\n", "half": whole[: len(whole) // 2], "a bit": b"Q" + whole[1:]}[how]
        )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["missing", "empty", "text", "half", "a bit", "other code", "other tensors"])
def test_a_rerun_of_a_training_whose_model_is_damaged_is_refused_in_whole_sentences(tmp_path, trained, capsys, how):
    folder = tmp_path / "t"
    shutil.copytree(trained, folder)
    damage_model(folder / "model.pt", how)
    capsys.readouterr()
    assert main([*TRAIN, "--out", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "wrote" not in err
    assert "model.pt" in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b"7", b'{"data": 7}', b'{"data": {"records": "x"}}', b"[" * 100_000]
)
def test_a_broken_statement_is_named_by_whoever_reads_it(tmp_path, trained, capsys, content):
    folder = tmp_path / "t"
    shutil.copytree(trained, folder)
    (folder / "statement.json").write_bytes(content)
    for line in (
        [*TRAIN, "--out", str(folder)],
        ["budget", "--history", str(folder / "ledger.jsonl"), "--delta", "1e-5", "--accountant", "rdp"],
    ):
        capsys.readouterr()
        code = main(line)
        out, err = capsys.readouterr()
        if line[0] == "budget" and content.startswith(b'{"data"'):
            assert code == 0  # no word of a ledger: it is held against the model
            continue
        assert code == 2, line
        assert out == ""
        assert "statement.json" in err


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b'{"data": {"records": "x"}}'])
def test_a_broken_statement_of_one_training_of_a_sweep_is_named(tmp_path, swept, capsys, content):
    line = [*SWEEP, "--out", str(tmp_path / "s")]
    shutil.copytree(swept, tmp_path / "s")
    next(iter(sorted((tmp_path / "s").glob("*/statement.json")))).write_bytes(content)
    capsys.readouterr()
    assert main(line) == 2
    assert "statement.json" in capsys.readouterr().err


@pytest.mark.slow
def test_a_backend_that_matplotlib_does_not_know_is_an_error_of_the_environment(tmp_path, table):
    env = {**os.environ, "MPLBACKEND": "nope"}
    line = [sys.executable, "-m", "wpriv", "plot", str(table), "--out", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, env=env)
    assert done.returncode == 4, done.stderr
    assert "MPLBACKEND" in done.stderr


def test_figures_without_matplotlib_name_the_package(tmp_path, table, capsys, monkeypatch):
    ordinary = builtins.__import__

    def absent(name, *rest):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return ordinary(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert main(["plot", str(table), "--out", str(tmp_path)]) == 4
    assert "the Python package matplotlib, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["is_file", "is_dir", "stat", "read_bytes"])
def test_a_folder_that_may_not_be_read_is_an_error_of_the_environment(tmp_path, table, capsys, monkeypatch, method):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    copy = tmp_path / "table.csv"
    copy.write_bytes(table.read_bytes())
    monkeypatch.setattr(Path, method, refuse)
    code = main(["plot", str(copy)])
    monkeypatch.undo()
    assert code == 4
    assert "Permission denied" in capsys.readouterr().err


def test_nothing_is_created_in_the_root_of_the_file_system(tmp_path):
    with pytest.raises(durable_writes.UsageError, match="root of the file system"):
        durable_writes.make_folder(Path("/wpriv-there-is-no-such-folder/inner"))
    durable_writes.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_history_without_end_is_refused(capsys):
    assert main(["budget", "--history", "/dev/zero", "--delta", "1e-5"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "/dev/zero" in err


def test_a_history_may_come_from_a_pipe(capsys, tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"[[1.0, 0.01, 100]]")
    os.close(writing)
    assert main(["budget", "--history", f"/dev/fd/{reading}", "--delta", "1e-5", "--accountant", "rdp", "--quiet"]) == 0
    assert float(capsys.readouterr().out) > 0
    os.close(reading)
