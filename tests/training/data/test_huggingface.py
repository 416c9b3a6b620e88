"""Data sets of the library ``datasets`` that lie on disk. Oracle: the values that were saved."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from wpriv.cli.main import main
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training import data

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.slow
N = 20
GREYS = [10 * i for i in range(N)]
IDS = np.random.default_rng(0).integers(0, 30, (N, 6))
COLUMNS = {
    "image": [Image.fromarray(np.full((6, 9, 3), grey, np.uint8)) for grey in GREYS],
    "label": [i % 2 for i in range(N)],
    "age": list(range(N)),
    "job": ["ab"[i % 2] for i in range(N)],
    "ids": IDS.tolist(),
    "height": [i / 3 for i in range(N)],
    "ragged": [[1.0] * (1 + (i == 7)) for i in range(N)],
    "gaps": [None if i == 4 else float(i) for i in range(N)],
}
TYPES = {
    "image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"]),
    "age": datasets.Value("int64"), "job": datasets.Value("string"),
    "ids": datasets.Sequence(datasets.Value("int32")), "height": datasets.Value("float64"),
    "ragged": datasets.Sequence(datasets.Value("float32")), "gaps": datasets.Value("float32"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "pets"
    whole = datasets.Dataset.from_dict(COLUMNS, features=datasets.Features(TYPES))
    parts = {"train": whole.select(range(15)), "test": whole.select(range(15, N))}
    datasets.DatasetDict(parts).save_to_disk(str(path))
    return path


def read(folder, **given):
    return data.read("huggingface", folder=str(folder), **given)


def test_pictures_are_resized_and_have_the_names_of_their_classes(folder):
    loaded = read(folder, x="image", size=3)
    assert (loaded.x_train.shape, loaded.x_test.shape) == ((15, 3, 3, 3), (5, 3, 3, 3))
    assert loaded.x_train[:, 0, 0, 0].tolist() == GREYS[:15]
    assert loaded.classes == ("cat", "dog")
    assert loaded.y_test.tolist() == COLUMNS["label"][15:]
    assert read(folder, x="image", size=3, grey=True).shape == (1, 3, 3)


def test_numeric_columns_are_rows_with_declared_ranges_and_categories(folder):
    loaded = read(folder, x=["age", "job"], ranges={"age": [0, 10]}, categories={"job": ["b", "a"]})
    wanted = [[min(i / 10, 1), float(i % 2), float(1 - i % 2)] for i in range(15)]
    assert loaded.x_train == pytest.approx(np.array(wanted))


def test_token_ids_stay_whole_numbers(folder):
    loaded = read(folder, x="ids", tokens=30)
    assert np.array_equal(loaded.x_train, IDS[:15])
    assert loaded.x_train.dtype == np.int64


def test_one_split_is_divided_and_floats_are_numbers_to_predict(tmp_path):
    columns = {name: COLUMNS[name] for name in ("age", "height")}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "d"))
    loaded = read(tmp_path / "d", x="age", y="height", test_share=0.25)
    assert (loaded.records, len(loaded.x_test)) == (15, 5)
    assert loaded.response_train[:, 0] == pytest.approx(loaded.x_train[:, 0] / 3)


def test_declared_classes_are_in_their_order(folder):
    assert read(folder, x="age", classes="dog,cat").y_train[:2].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "error", "fact"),
    [
        ({"x": "imgae"}, UsageError, "'imgae'.*'image'"),
        ({"x": "age", "y": "lable"}, UsageError, "'lable'.*'label'"),
        ({"x": "job"}, FaultyRecords, "train, job, record 0: wanted finite numbers"),
        ({"x": "ragged"}, FaultyRecords, "ragged, record 7: wanted a list of length 1.*found a list of length 2"),
        ({"x": "gaps"}, FaultyRecords, "gaps, record 4: wanted finite numbers"),
        ({"x": "image,age"}, UsageError, "one picture, or numbers"),
        ({"x": "ids", "tokens": 5}, FaultyRecords, "from 0 to 4, as declared"),
        ({"x": "height", "tokens": 5}, FaultyRecords, "whole numbers in height"),
        ({"x": "age", "classes": "cat,cow"}, FaultyRecords, "record 1: the label is 'dog'"),
        ({"x": "age", "test": "validation"}, UsageError, "'validation'.*train, test"),
        ({"x": "age", "train": "all"}, UsageError, "'all'.*train, test"),
        ({"x": "job", "categories": {"job": ["a", "c"]}}, FaultyRecords, "record 1: has 'b'"),
    ],
)
def test_faulty_columns_are_refused_with_the_place(folder, given, error, fact):
    with pytest.raises(error, match=fact) as refused:
        read(folder, **given)
    assert str(folder) in str(refused.value) or "huggingface:pets" in str(refused.value)
    assert refused.value.exit_code == 2


def test_another_folder_and_a_corrupt_picture_end_with_2(tmp_path, capsys):
    argv = ["data", "show", "huggingface", "--param", "x=image", "--param"]
    assert main([*argv, f"folder={tmp_path}"]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    images = {"image": [{"bytes": b"no picture", "path": None}] * 3, "label": [0, 1, 0]}
    types = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(images, features=types).save_to_disk(str(tmp_path / "d"))
    assert main([*argv, f"folder={tmp_path / 'd'}"]) == 2
    message = capsys.readouterr().err
    assert "image, record 0: not a complete picture" in message
    assert "Traceback" not in message
