"""Tables, pictures and tokens of the user's own with public declarations, and what their readers refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from wpriv.cli.main import main
from wpriv.errors import FaultyRecords, MissingResource, UsageError
from wpriv.training import data

ROWS = [(20 + i, ("clerk", "farmer", "nurse")[i % 3], i / 4, ("low", "high")[i % 2]) for i in range(30)]
CSV = "age,job,hours,income\n" + "".join(f"{a},{j},{h},{i}\n" for a, j, h, i in ROWS)
JOBS = ["nurse", "clerk", "farmer", "pilot"]
GIVEN = {"target": "income", "ranges": {"age": [30, 40]}, "categories": {"job": JOBS}, "classes": ["low", "high"]}


def table(folder, text=CSV, **given):
    (folder / "people.csv").write_bytes(text.encode())
    return data.read("table", root=folder, file="people.csv", **(GIVEN | given))


def test_declared_columns_do_not_depend_on_the_other_rows(tmp_path):
    """Oracle: each row by hand, from its own cells and the declarations alone."""
    loaded = table(tmp_path, test_share=0)
    assert loaded.columns == ("age", "job=nurse", "job=clerk", "job=farmer", "job=pilot", "hours")
    assert loaded.classes == ("low", "high")
    assert loaded.notes == ()
    for x, y, (age, job, hours, income) in zip(loaded.x_train, loaded.y_train, ROWS, strict=True):
        wanted = [min(max((age - 30) / 10, 0), 1), *[float(job == word) for word in JOBS], hours]
        assert x == pytest.approx(wanted)
        assert ("low", "high")[y] == income
    # without one row the others are the same numbers: nothing was computed from the records
    fewer = table(tmp_path, CSV.replace("20,clerk,0.0,low\n", ""), test_share=0)
    assert np.array_equal(fewer.x_train, loaded.x_train[1:])


def test_declarations_may_be_text_as_flags_are(tmp_path):
    text = {
        "ranges": json.dumps(GIVEN["ranges"]), "categories": json.dumps(GIVEN["categories"]), "classes": "low, high",
    }  # fmt: skip
    assert table(tmp_path, **text).fingerprint == table(tmp_path).fingerprint


def test_a_second_table_is_for_testing(tmp_path):
    (tmp_path / "later.csv").write_text(CSV.replace("20,", "35,", 1))
    loaded = table(tmp_path, test_file="later.csv")
    assert (loaded.records, len(loaded.x_test)) == (30, 30)
    assert loaded.x_test[0, 0] == 0.5
    (tmp_path / "later.csv").write_text(CSV.replace("hours", "time"))
    with pytest.raises(FaultyRecords, match=r"later\.csv: wanted the columns of"):
        table(tmp_path, test_file="later.csv")


def test_a_target_may_be_a_number_to_predict(tmp_path):
    loaded = table(tmp_path, target="hours", number=True, drop="income", classes="", test_share=0)
    assert loaded.response == ("hours",)
    assert loaded.response_train[:, 0].tolist() == [row[2] for row in ROWS]


@pytest.mark.parametrize(
    ("text", "given", "error", "fact"),
    [
        (CSV.replace("23,clerk", "23,cook"), {}, FaultyRecords, r"people\.csv:5: column 'job' has 'cook'.*nurse"),
        (CSV.replace("5.0,low", "5.0,none"), {}, FaultyRecords, r"people\.csv:22: column 'income' has 'none'"),
        (CSV.replace("23,", "young,"), {}, FaultyRecords, r"people\.csv.*line 5.*'young'|people\.csv.*'young'"),
        (CSV.replace("23,", "nan,"), {}, FaultyRecords, r"people\.csv:5: column 'age'.*nan"),
        (CSV.replace("23,", "inf,"), {}, FaultyRecords, r"people\.csv:5: column 'age'.*inf"),
        (CSV, {"categories": {}}, FaultyRecords, r"'clerk'.*categories"),
        (CSV, {"ranges": {"agee": [0, 1]}}, UsageError, r"people\.csv: ranges.*'agee'.*'age'"),
        (CSV, {"ranges": {"age": [40, 30]}}, UsageError, r"ranges: age.*\[40, 30\]"),
        (CSV, {"ranges": {"age": [40]}}, UsageError, r"ranges: age.*two numbers"),
        (CSV, {"ranges": {"age": ["x", 3]}}, UsageError, r"ranges: age"),
        (CSV, {"ranges": {"job": [0, 1]}}, UsageError, "both a range and categories"),
        (CSV, {"ranges": "age"}, UsageError, "JSON"),
        (CSV, {"categories": {"job": ["a", "a"]}}, UsageError, "different words"),
        (CSV, {"classes": [True, False]}, UsageError, "quotes"),
        (CSV, {"classes": 3}, UsageError, "list of words"),
    ],
)
def test_faulty_tables_and_declarations_are_refused_with_the_place(tmp_path, text, given, error, fact):
    with pytest.raises(error, match=fact) as refused:
        table(tmp_path, text, **given)
    assert refused.value.exit_code == 2


def paint(path, grey=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((6, 8, 3), grey, np.uint8)).save(path)


def pets(folder):
    for part, count in (("train", 3), ("test", 1)):
        for number, pet in enumerate(("cat", "dog")):
            for k in range(count):
                paint(folder / part / pet / f"{k}.png", 100 * number + 10)
    return folder


def test_the_folders_train_and_test_are_the_parts_and_their_folders_the_classes(tmp_path):
    loaded = data.read("images", folder=str(pets(tmp_path / "pets")), size=4)
    assert (loaded.records, len(loaded.x_test), loaded.classes) == (6, 2, ("cat", "dog"))
    assert loaded.x_train[:, 0, 0, 0].tolist() == [10] * 3 + [110] * 3
    assert loaded.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert loaded.y_test.tolist() == [0, 1]
    assert "sub-folders" in loaded.notes[0]
    declared = data.read("images", folder=str(tmp_path / "pets"), size=4, classes="dog, emu, cat", grey=True)
    assert declared.classes == ("dog", "emu", "cat")
    assert declared.y_train.tolist() == [2, 2, 2, 0, 0, 0]
    assert declared.shape == (1, 4, 4)
    assert declared.notes == ()


def _add_class(folder):
    paint(folder / "test" / "emu" / "0.png")


def _add_part(folder):
    paint(folder / "valid" / "cat" / "0.png")


def _empty_class(folder):
    (folder / "train" / "cow").mkdir()


def _corrupt(folder):
    (folder / "train" / "cat" / "1.png").write_bytes(b"no picture")


def _empty(folder):
    for path in (folder / "test").rglob("*.png"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "given", "place"),
    [
        (_add_class, {}, "emu"),
        (_add_part, {}, "valid"),
        (_empty_class, {}, "cow"),
        (_corrupt, {}, "1.png"),
        (_empty, {}, "test"),
        (None, {"classes": "cat,cow"}, "dog"),
    ],
)
def test_faulty_folders_of_pictures_end_with_2_and_the_place(tmp_path, capsys, damage, given, place):
    folder = pets(tmp_path / "pets")
    if damage:
        damage(folder)
    flags = [f"--param={key}={value}" for key, value in given.items()]
    assert main(["data", "show", "images", "--param", f"folder={folder}", *flags]) == 2
    message = capsys.readouterr().err
    assert place in message
    assert str(folder) in message
    assert "Traceback" not in message


def test_a_missing_folder_ends_with_4_and_its_path(capsys):
    assert main(["data", "show", "images", "--param", "folder=nowhere"]) == 4
    assert "nowhere" in capsys.readouterr().err


IDS = np.random.default_rng(0).integers(0, 30, (20, 5))


def test_tokens_stay_whole_numbers(tmp_path):
    np.savez(tmp_path / "text.npz", x=IDS.astype(np.int32), y=np.arange(20) % 2)
    loaded = data.read("arrays", file=str(tmp_path / "text.npz"), tokens=30, test_share=0.25)
    assert (loaded.x_train.dtype, loaded.vocabulary, loaded.shape) == (np.int64, 30, (5,))
    rows = np.concatenate([loaded.x_train, loaded.x_test])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, IDS.tolist()))
    assert data.read("arrays", file=str(tmp_path / "text.npz")).x_train.dtype == np.float32


@pytest.mark.parametrize(
    ("x", "fact"),
    [
        (IDS + 0.5, r"whole numbers, \[N, T\]; found float64"),
        (IDS[:, :, None], r"found int64 \[20, 5, 1\]"),
        (np.where(IDS[0, 0] == IDS, 30, IDS), "from 0 to 29, as declared; found 30"),
        (np.where(IDS[0, 0] == IDS, -1, IDS), "found -1"),
        (np.full((20, 5), 2**63, np.uint64), "found uint64"),
    ],
)
def test_faulty_tokens_are_refused_with_the_place(tmp_path, capsys, x, fact):
    path = tmp_path / "text.npz"
    np.savez(path, x=x, y=np.arange(20) % 2)
    with pytest.raises(FaultyRecords, match=fact):
        data.read("arrays", file=str(path), tokens=30)
    assert main(["data", "show", "arrays", "--param", f"file={path}", "--param", "tokens=30"]) == 2
    assert "arrays:text" in capsys.readouterr().err


def test_noise_on_tokens_is_refused(tmp_path, capsys):
    np.savez(tmp_path / "text.npz", x=IDS, y=np.arange(20) % 2)
    argv = ["privatize", "--data", "arrays", "--param", f"file={tmp_path / 'text.npz'}", "--param", "tokens=30"]
    argv += [
        "--mech",
        "local-gauss",
        "--eps",
        "2",
        "--delta",
        "1e-5",
        "--radius",
        "1",
        "--out",
        str(tmp_path / "o.npz"),
    ]
    assert main(argv) == 2
    assert "tokens" in capsys.readouterr().err


def test_a_mapping_of_a_reader_may_name_the_vocabulary(tmp_path):
    path = tmp_path / "reader.py"
    path.write_text("def read(size):\n    return {'x': [[0, 1], [2, 3]] * 5, 'y': [0, 1] * 5, 'tokens': size}\n")
    assert data.read_own(str(path), "read", {"size": 4}).vocabulary == 4
    with pytest.raises(UsageError, match="tokens"):
        data.read_own(str(path), "read", {"size": 1.5})


def test_an_npz_file_that_is_cut_off_ends_with_2(tmp_path, capsys):
    path = tmp_path / "mine.npz"
    np.savez(path, x=IDS, y=np.arange(20) % 2)
    path.write_bytes(path.read_bytes()[:200])
    assert main(["data", "show", "arrays", "--param", f"file={path}"]) == 2
    assert str(path) in capsys.readouterr().err


def test_without_the_library_a_saved_data_set_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    (tmp_path / "saved").mkdir()
    with pytest.raises(MissingResource, match=r"pip install 'wpriv\[datasets\]'"):
        data.read("huggingface", root=tmp_path, folder="saved", x="image")


def test_a_recipe_declares_columns_as_mappings_and_lists(tmp_path, capsys):
    (tmp_path / "people.csv").write_text(CSV)
    recipe = tmp_path / "people.yaml"
    recipe.write_text(
        "kind: train\nsource: a test\ntask: classify\n"
        "data: {name: table, file: people.csv, target: income, ranges: {age: [30, 40]}, classes: [low, high],\n"
        "  categories: {job: [nurse, clerk, farmer, pilot]}}\n"
        "model: {name: logistic}\nprivacy: {eps: 3, delta: 1e-5}\noptimizer: {name: sgd, lr: 0.5}\n"
        "batch: 10\nsteps: 2\n"
    )
    assert main(["train", str(recipe), "--out", str(tmp_path / "r")]) == 0
    capsys.readouterr()
    for change, place in (("data.ranges=3", "ranges"), ("data.classes={a: 1}", "classes"), ("data.x=age", "'x'")):
        assert main(["train", str(recipe), "--out", str(tmp_path / "o"), "--set", change]) == 2
        assert place in capsys.readouterr().err
    assert main(["train", str(recipe), "--out", str(tmp_path / "o"), "--set", "data.ranges={age: [4, 3]}"]) == 2
    assert "ranges: age" in capsys.readouterr().err
