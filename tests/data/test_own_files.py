"""Tables, folders of pictures and the digits of scikit-learn."""

from __future__ import annotations

import gzip
import sys
from importlib import resources

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from wpriv import data
from wpriv.data import _record, digits, images
from wpriv.errors import MissingResource, UsageError

CSV = 'age,"hours, a week",sex,label\n' + "".join(
    f"{20 + i},{i % 7}.5,{'fm'[i % 2]},{'yes' if i % 3 else 'no'}\n" for i in range(30)
)


def table(folder, text=CSV, **given):
    (folder / "people.csv").write_bytes(text.encode())
    return data.read("table", root=folder, file="people.csv", **({"target": "label", "drop": "sex"} | given))


def test_a_table_has_its_columns_classes_and_groups(tmp_path):
    found = table(tmp_path, sensitive="sex")
    assert found.columns == ("age", "hours, a week")
    assert found.classes == ("no", "yes")
    assert found.name == "table:people"
    assert (len(found.x_train), len(found.x_test)) == (24, 6)
    for part in ("train", "test"):
        x, y, group = (getattr(found, f"{name}_{part}") for name in ("x", "y", "sensitive"))
        i = x[:, 0].astype(int) - 20
        assert x.dtype == np.float32
        assert np.array_equal(x[:, 1], i % 7 + np.float32(0.5))
        assert np.array_equal(y, (i % 3 > 0).astype(int))
        assert np.array_equal(group, i % 2)


def test_every_row_is_in_one_part_and_the_seed_chooses_which(tmp_path):
    found, again, other = (table(tmp_path, split_seed=seed) for seed in (0, 0, 1))
    assert sorted(np.concatenate([found.x_train, found.x_test])[:, 0]) == list(range(20, 50))
    assert found.fingerprint == again.fingerprint != other.fingerprint


def test_classes_that_are_numbers_stand_in_the_order_of_numbers(tmp_path):
    text = "x,y\n" + "".join(f"{i},{(10, 9, -1)[i % 3]}\n" for i in range(9))
    assert table(tmp_path, text, target="y", drop="").classes == ("-1", "9", "10")


@pytest.mark.parametrize(
    ("text", "given", "error", "told"),
    [
        (CSV, {"target": "lable"}, UsageError, "no column called 'lable'; did you mean 'label'"),
        (CSV, {"sensitive": "race"}, UsageError, "no column called 'race'"),
        (
            CSV,
            {"drop": ""},
            MissingResource,
            "could not convert string 'f'.*row 0, column 3.*Encode text as numbers, or drop it",
        ),
        (
            CSV.replace("25,", "nan,"),
            {},
            MissingResource,
            r"every number must be finite; found nan in example \d+ \(column 'age'\)",
        ),
        (CSV.replace("25,", "1e60,"), {}, MissingResource, "found inf"),
        (CSV.replace("25,", ","), {}, MissingResource, "wanted a number in every cell"),
        (CSV + "1,2\n", {}, MissingResource, "wanted a number in every cell.*line 32: "),
        (
            CSV.replace("25,", "25,1,"),
            {},
            MissingResource,
            "line 7: 4 columns were wanted, as in the first line; found 5",
        ),
        (CSV.replace(",no\n", ",\n"), {}, MissingResource, "column 'label' has an empty cell in row 2"),
        (CSV.replace("sex", "age"), {}, MissingResource, "'age'"),
        ("", {}, MissingResource, "found none"),
        ("a,label\n", {"drop": ""}, MissingResource, "has no rows"),
        ("label\n1\n", {"drop": ""}, UsageError, "no column is left"),
        (CSV, {"test_share": -0.1}, UsageError, "at least 0"),
    ],
)
def test_wrong_tables_are_told(tmp_path, text, given, error, told):
    with pytest.raises(error, match=told):
        table(tmp_path, text, **given)


def test_a_table_that_is_no_text_is_told(tmp_path):
    (tmp_path / "people.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MissingResource, match="not a CSV file in UTF-8"):
        data.read("table", root=tmp_path, file="people.csv", target="label")


def test_adult_leaves_out_both_columns_of_its_target_and_knows_another_file(tmp_path):
    rows = "".join(f"{20 + i},{i % 2},{1 - i % 2},{i % 3 // 2},{1 - i % 3 // 2}\n" for i in range(20))
    (tmp_path / "adult_old.csv").write_text("age,sex_Male,sex_Female,salary_>50K,salary_<=50K\n" + rows)
    found = data.read("adult", root=tmp_path)
    assert found.name == "adult-unverified"
    assert found.columns == ("age", "sex_Male", "sex_Female")
    assert np.array_equal(found.y_train, (found.x_train[:, 0].astype(int) - 20) % 3 // 2)
    assert np.array_equal(found.sensitive_train, found.x_train[:, 1].astype(int))
    assert data.read("adult", root=tmp_path, drop="sex_Male, sex_Female").columns == ("age",)


def test_german_has_its_target_and_group(tmp_path):
    (tmp_path / "german").mkdir()
    (tmp_path / "german" / "german.csv").write_text("month,sex,credit-label\n" + "6,1,0\n8,0,1\n" * 10)
    found = data.read("german", root=tmp_path)
    assert found.columns == ("month", "sex")
    assert np.array_equal(found.y_train, (found.x_train[:, 0] == 8).astype(int))


def paint(folder):
    """Five pictures, each a third red, then green, then blue, 40 wide and 30 high."""
    folder.mkdir(parents=True)
    pixels = np.zeros((30, 40, 3), np.uint8)
    for i, columns in enumerate((slice(0, 5), slice(5, 35), slice(35, 40))):
        pixels[:, columns, i] = 255
    for i in range(5):
        Image.fromarray(pixels).save(folder / f"{i:06d}.png")


def test_pictures_are_cut_about_the_middle(tmp_path):
    paint(tmp_path / "celeba")
    found = data.read("images", root=tmp_path, folder="celeba", size=10, test_share=0.4)
    assert found.x_train.shape == (3, 3, 10, 10)
    assert found.x_train.dtype == np.uint8
    assert (found.x_train.mean((0, 2, 3)) == [0, 255, 0]).all()  # only the green middle is left
    assert found.classes == ("picture",)
    assert found.name == "images:celeba"


def test_labels_of_pictures_are_sub_folders_or_an_attribute(tmp_path):
    paint(tmp_path / "a" / "cats"), paint(tmp_path / "a" / "dogs")
    found = data.read("images", root=tmp_path, folder="a", size=4, test_share=0)
    assert found.classes == ("cats", "dogs")
    assert found.y_train.tolist() == [0] * 5 + [1] * 5
    paint(tmp_path / "b")
    lines = [f"{i:06d}.png  1 {1 if i == 3 else -1}" for i in range(5)]
    (tmp_path / "list.txt").write_text("\n".join(["5", "Bald Male", *lines]))
    found = data.read(
        "images", root=tmp_path, folder="b", size=4, test_share=0, attributes="list.txt", attribute="Male"
    )
    assert found.y_train.tolist() == [0, 0, 0, 1, 0]
    assert found.classes == ("not Male", "Male")
    with pytest.raises(UsageError, match="no attribute called 'Mal'; found Bald, Male"):
        data.read("images", root=tmp_path, folder="b", attributes="list.txt", attribute="Mal")
    (tmp_path / "list.txt").write_text("\n".join(["5", "Bald Male", *lines[:4]]))
    with pytest.raises(MissingResource, match=r"found none for 1, such as 000004\.png"):
        data.read("images", root=tmp_path, folder="b", attributes="list.txt", attribute="Male")


def _cut(folder):
    path = folder / "000002.png"
    path.write_bytes(path.read_bytes()[:60])


def _beside(folder):
    paint(folder / "more")


def _empty(folder):
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("harm", "told"),
    [(_cut, r"000002\.png: not a whole picture"), (_beside, "pictures beside sub-folders"), (_empty, "found none")],
)
def test_broken_folders_are_told(tmp_path, harm, told):
    paint(tmp_path / "a")
    harm(tmp_path / "a")
    with pytest.raises(MissingResource, match=told):
        data.read("images", root=tmp_path, folder="a")


def test_a_crop_beyond_the_picture_and_a_picture_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    paint(tmp_path / "a")
    with pytest.raises(MissingResource, match="a square of 31 cannot be cut from 40 x 30"):
        data.read("images", root=tmp_path, folder="a", crop=31)
    monkeypatch.setattr(images, "MAX_PIXELS", 1000)
    with pytest.raises(MissingResource, match="at most 1,000 are read"):
        data.read("images", root=tmp_path, folder="a")


def test_the_digits_are_those_of_scikit_learn_record_by_record():
    images, labels = load_digits(return_X_y=True)
    found = data.read("digits", test_share=0.0)
    assert (found.x_train.dtype, found.x_train.shape) == (np.float32, (1797, 1, 8, 8))
    assert np.array_equal(found.x_train.reshape(-1, 64) * 16, images)
    assert np.array_equal(found.y_train, labels)
    parts = data.read("digits")
    assert (len(parts.x_train), len(parts.x_test)) == (1438, 359)
    assert parts.fingerprint == "a035a08f7a33c470"  # that of the digits which scikit-learn itself had read


def test_the_digits_are_read_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert data.read("digits").fingerprint == "a035a08f7a33c470"


def test_digits_with_another_content_are_refused_by_their_checksum(tmp_path, monkeypatch):
    changed = gzip.decompress(digits.FILE.read_bytes()).replace(b"0,0,5,13", b"0,0,5,12", 1)
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(changed))
    monkeypatch.setattr(digits, "FILE", tmp_path / "digits.csv.gz")
    with pytest.raises(MissingResource, match=f"wanted content with SHA-256 {digits.SHA256}"):
        data.read("digits")
    monkeypatch.setattr(digits, "FILE", tmp_path / "none.csv.gz")
    with pytest.raises(MissingResource, match="cannot be read"):
        data.read("digits")


def test_the_packed_digits_can_be_made_again_from_scikit_learn():
    packed = digits.FILE.read_bytes()
    content = gzip.decompress(packed)
    assert content == gzip.decompress((resources.files("sklearn.datasets.data") / "digits.csv.gz").read_bytes())
    assert (
        packed[:9] == gzip.compress(content, compresslevel=9, mtime=0)[:9]
    )  # neither a time nor a name; the tenth byte is the system
    assert digits.SHA256 in digits.FILE.with_name("digits.LICENSE.txt").read_text()


def record(**changed):
    whole = {
        "x_train": np.zeros((3, 2), np.float32),
        "y_train": np.array([0, 1, 1]),
        "x_test": np.zeros((0, 2), np.float32),
        "y_test": np.zeros(0, int),
    }
    return _record.Data(name="d", classes=("a", "b"), source="s", **(whole | changed))


def test_a_record_tells_its_sizes_and_may_have_no_test_set():
    found = record()
    assert found.records == 3
    assert found.shape == (2,)
    assert found.describe()["test"] == 0


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x_train": np.full((3, 2), np.nan, np.float32)}, "found nan in example 0"),
        ({"x_train": np.zeros((3, 2))}, "one type"),
        ({"x_train": np.zeros((3, 2)), "x_test": np.zeros((0, 2))}, "wanted uint8 or float32"),
        ({"y_train": np.array([0, 1, 2])}, "found 2 at example 2"),
        ({"y_train": np.array([0, -1, 1])}, "found -1 at example 1"),
        ({"y_train": np.array([0.0, 1, 1])}, "whole numbers"),
        ({"y_train": np.array([[0], [1], [1]])}, "whole numbers"),
        ({"sensitive_train": np.array([0, 1])}, "as many"),
    ],
)
def test_a_record_that_does_not_fit_together_is_refused(changed, told):
    with pytest.raises(MissingResource, match=told):
        record(**changed)


def test_bytes_are_scaled_to_zero_to_one_and_floats_are_left():
    assert _record.scaled(np.array([0, 51, 255], np.uint8)).tolist() == [0.0, np.float32(0.2), 1.0]
    assert _record.scaled(np.array([-3.0], np.float32)).tolist() == [-3.0]


@pytest.mark.parametrize("name", ["mnsit", "cifar-10"])
def test_an_unknown_data_set_is_refused_with_the_nearest_one(name):
    with pytest.raises(UsageError, match=f"no data set called '{name}'; did you mean"):
        data.read(name)
