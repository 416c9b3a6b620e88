"""Arrays of the user's own as data sets: from a .npz file, from a reader of theirs, and from Python."""

from __future__ import annotations

import numpy as np
import pytest

from wpriv.errors import MissingResource, UsageError
from wpriv.training import data

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 4)), RNG.integers(0, 3, 50)


def of_arrays(train, test=None, **more):
    return data.of_arrays("mine", train, test, source="a test", **more)


def test_a_file_with_both_parts_is_read_as_it_is(tmp_path):
    path = tmp_path / "mine.npz"
    images = RNG.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    np.savez(path, x_train=images, y_train=np.arange(20) % 2, x_test=images[:5], y_test=np.arange(5) % 2)
    loaded = data.read("arrays", file=str(path))
    assert np.array_equal(loaded.x_train, images)
    assert (loaded.records, len(loaded.x_test), loaded.classes) == (20, 5, ("0", "1"))


def test_a_file_with_one_part_is_split_by_the_seed(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=X, y=Y)
    one, same, other = (data.read("arrays", file=str(path), test_share=0.3, split_seed=seed) for seed in (0, 0, 1))
    assert (one.records, len(one.x_test)) == (35, 15)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    rows = np.concatenate([one.x_train, one.x_test])
    assert np.array_equal(np.sort(rows, axis=0), np.sort(X.astype(np.float32), axis=0))


def test_a_file_with_other_arrays_is_refused_with_their_names(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, images=X, labels=Y)
    with pytest.raises(MissingResource, match=r"images \[50, 4\]"):
        data.read("arrays", file=str(path))


def test_grey_pictures_get_one_channel():
    assert of_arrays((RNG.normal(size=(9, 5, 6)), np.arange(9) % 2)).shape == (1, 5, 6)


def test_pictures_with_channels_last_are_refused_with_the_remedy():
    with pytest.raises(MissingResource, match=r"transpose\(0, 3, 1, 2\)"):
        of_arrays((RNG.normal(size=(9, 8, 8, 3)), np.arange(9) % 2))


def test_words_are_classes_in_their_order():
    loaded = of_arrays((X[:4], ["dog", "cat", "dog", "emu"]), (X[:1], ["cat"]))
    assert loaded.classes == ("cat", "dog", "emu")
    assert loaded.y_train.tolist() == [1, 0, 1, 2]
    assert loaded.notes


def test_float_targets_are_numbers_to_predict_and_classes_where_they_are_whole():
    numbers = of_arrays((X, X @ np.ones(4)), (X[:5], X[:5] @ np.ones(4)))
    assert (numbers.classes, numbers.response_train.shape) == (("a number",), (50, 1))
    whole = of_arrays((X, Y.astype(float)), (X[:5], Y[:5].astype(float)))
    assert whole.classes == ("0", "1", "2")
    assert np.array_equal(whole.response_train[:, 0], Y)
    several = of_arrays((X, X[:, :2]), (X[:5], X[:5, :2]))
    assert several.response_train.shape == (50, 2)


@pytest.mark.parametrize(
    ("train", "word"),
    [
        ((X, Y[:10]), "10"),
        ((X[0], Y), r"\[4\]"),
        ((X, Y[:, None, None]), r"\[50, 1, 1\]"),
        ((np.array(["a"] * 3), Y[:3]), "records"),
        ((np.full((3, 2), np.nan), Y[:3]), "nan"),
        ((X[:0], Y[:0]), "none"),
        (([[1, 2], [3]], [0, 1]), "records"),
        ((np.full((3, 2), 1e300), Y[:3]), "inf"),
    ],
)
def test_arrays_that_are_no_records_are_refused(train, word):
    with pytest.raises(MissingResource, match=word):
        of_arrays(train)


def test_targets_of_a_single_record_are_those_of_that_record():
    targets = np.array([[0.5, 0.25, 0.125]])
    loaded = of_arrays((X, np.tile(targets, (50, 1))), (X[:1], targets))
    assert np.array_equal(loaded.response_test, targets)


def test_whole_targets_of_too_many_values_for_classes_are_numbers_to_predict():
    values = np.arange(10_001.0)
    loaded = of_arrays((values[:, None], values), (values[:2, None], values[:2]))
    assert loaded.classes == ("a number",)
    assert np.array_equal(loaded.response_train[:, 0], values)


def test_bytes_to_train_on_and_numbers_to_test_on_are_refused():
    # bytes are divided by 255 when they are used, and numbers are not
    images = np.zeros((4, 1, 2, 2), np.uint8)
    with pytest.raises(MissingResource, match="same type"):
        of_arrays((images, np.arange(4) % 2), (images / 255, np.arange(4) % 2))


RETURNS = {
    "pair": "(x, y)",
    "two_pairs": "((x, y), (x[:5], y[:5]))",
    "four": "(x, y, x[:5], y[:5])",
    "mapping": "{'x_train': x, 'y_train': y, 'x_test': x[:5], 'y_test': y[:5]}",
}


@pytest.mark.parametrize("form", RETURNS)
def test_a_reader_of_ones_own_may_return_any_of_the_forms(tmp_path, form):
    path = tmp_path / "reader.py"
    path.write_text(
        "import numpy as np\n"
        "x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2\n"
        f"def read(limit):\n    return {RETURNS[form].replace('(x, y)', '(x[:limit], y[:limit])')}\n"
    )
    loaded = data.read_own(str(path), "read", {"limit": 20})
    assert loaded.records + (4 if form == "pair" else 0) == 20


@pytest.mark.parametrize("returned", ["3", "(1, 2, 3)", "{'a': 1}", "None"])
def test_a_reader_that_returns_something_else_is_refused(tmp_path, returned):
    path = tmp_path / "reader.py"
    path.write_text(f"def read():\n    return {returned}\n")
    with pytest.raises(UsageError, match="read must return"):
        data.read_own(str(path), "read", {})


def test_records_of_a_python_program_cannot_be_read_by_a_recipe():
    with pytest.raises(UsageError, match=r"wpriv\.train"):
        data.read("given")


def test_readers_take_declared_classes_and_keep_whole_labels(tmp_path):
    labels = 2 * (np.arange(50) % 3)
    np.savez(tmp_path / "mine.npz", x=X, y=labels)
    (tmp_path / "reader.py").write_text(
        f"import numpy as np\n\ndef read():\n    stored = np.load({str(tmp_path / 'mine.npz')!r})\n"
        "    return {'x': stored['x'], 'y': stored['y'], 'classes': [4, 2, 0]}\n"
    )
    for name in ("arrays", "features"):
        plain = data.read(name, file=str(tmp_path / "mine.npz"), test_share=0)
        assert plain.y_train.tolist() == labels.tolist()
        assert plain.classes == ("0", "1", "2", "3", "4")
        assert "taken as public" in plain.notes[0]
        declared = data.read(name, file=str(tmp_path / "mine.npz"), test_share=0, classes=[4, 2, 0])
        assert [int(declared.classes[k]) for k in declared.y_train] == labels.tolist()
        assert declared.classes == ("4", "2", "0")
        assert not declared.notes
        with pytest.raises(MissingResource, match="found 4 at record 2, which is none of the declared classes: 0, 2"):
            data.read(name, file=str(tmp_path / "mine.npz"), test_share=0, classes="0,2")
    own = data.read_own(str(tmp_path / "reader.py"), "read", {})
    assert own.classes == ("4", "2", "0")


def test_whole_labels_that_cannot_be_places_of_outputs_are_numbers_to_predict():
    for labels in (np.arange(50) - 1, 10_000 * np.arange(50)):
        loaded = of_arrays((X, labels), (X[:5], labels[:5]))
        assert loaded.classes == ("a number",)
        assert loaded.response_train[:, 0].tolist() == labels.tolist()
