"""Tables, folders of pictures, the digits of scikit-learn, and the validation of ``Data``."""

from __future__ import annotations

import gzip
import sys
from importlib import resources

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from wpriv.errors import MissingResource, UsageError
from wpriv.training import data
from wpriv.training.data import _dataset, _formats
from wpriv.training.data._published import Digits

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


def test_every_row_of_a_table_is_in_one_part_chosen_by_the_seed(tmp_path):
    found, again, other = (table(tmp_path, split_seed=seed) for seed in (0, 0, 1))
    assert sorted(np.concatenate([found.x_train, found.x_test])[:, 0]) == list(range(20, 50))
    assert found.fingerprint == again.fingerprint != other.fingerprint


def test_numeric_classes_are_sorted_as_numbers(tmp_path):
    text = "x,y\n" + "".join(f"{i},{(10, 9, -1)[i % 3]}\n" for i in range(9))
    assert table(tmp_path, text, target="y", drop="").classes == ("-1", "9", "10")


@pytest.mark.parametrize(
    ("text", "given", "error", "fact"),
    [
        (CSV, {"target": "lable"}, UsageError, "'lable'.*'label'"),
        (CSV, {"sensitive": "race"}, UsageError, "'race'"),
        (CSV, {"drop": ""}, MissingResource, "string 'f'.*row 0, column 3"),
        (CSV.replace("25,", "nan,"), {}, MissingResource, r"people\.csv:7: column 'age'.*found nan"),
        (CSV.replace("25,", "1e60,"), {}, MissingResource, "found inf"),
        (CSV.replace("25,", ","), {}, MissingResource, "people.csv.*number"),
        (CSV + "1,2\n", {}, MissingResource, "line 32: "),
        (CSV.replace("25,", "25,1,"), {}, MissingResource, "line 7: 4 columns.*found 5"),
        (CSV.replace(",no\n", ",\n"), {}, MissingResource, ":2: column 'label' has an empty cell"),
        (CSV.replace("sex", "age"), {}, MissingResource, "'age'"),
        (CSV.replace("yes", "1").replace("no", "1.0"), {}, MissingResource, "label.*'1'.*'1.0'"),
        (CSV, {"test_share": 1e308}, MissingResource, "none of 30"),
        ("", {}, MissingResource, "found none"),
        ("a,label\n", {"drop": ""}, MissingResource, "no rows"),
        ("label\n1\n", {"drop": ""}, UsageError, "no column"),
        (CSV, {"test_share": -0.1}, UsageError, "test_share.*-0.1"),
    ],
)
def test_unusable_tables_are_refused(tmp_path, text, given, error, fact):
    with pytest.raises(error, match=fact):
        table(tmp_path, text, **given)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (CSV.replace(",", ";"), "line 1.*semicolons|:1: .*semicolons"),
        (CSV.replace(",", "\t"), ":1: .*tabs"),
        (CSV.replace("25,", ""), r"people\.csv: line 7: 4 columns.*found 3$"),
        (CSV.replace("25,", '"25,'), r"people\.csv: line 7: not a CSV table.*quotation mark"),
        ("," + CSV.replace("\n", "\n1,", 30), "numbers of the rows.*index=False"),
        ("Unnamed: 0," + CSV.replace("\n", "\n1,", 30), "numbers of the rows.*index=False"),
    ],
)
def test_the_fault_of_a_table_is_named_and_not_another(tmp_path, text, fact):
    with pytest.raises(MissingResource, match=fact) as error:
        table(tmp_path, text)
    assert "categories" not in str(error.value)


def test_a_column_of_row_numbers_may_be_dropped(tmp_path):
    text = "Unnamed: 0," + CSV.replace("\n", "\n1,", 30)
    assert np.array_equal(table(tmp_path, text, drop="Unnamed: 0,sex").x_train, table(tmp_path, CSV).x_train)


def test_words_that_stand_for_missing_values_are_no_class_unless_declared(tmp_path):
    for word in ("nan", "NaN", "NA", "n/a", "NULL", "inf"):
        text = CSV.replace("yes", word, 1)
        line = next(number for number, row in enumerate(text.split("\n"), 1) if row.endswith(word))
        with pytest.raises(MissingResource, match=rf"people\.csv:{line}: column 'label' has '{word}'.*missing value"):
            table(tmp_path, text)
        declared = table(tmp_path, text, classes=["no", "yes", word])
        assert (np.concatenate([declared.y_train, declared.y_test]) == 2).sum() == 1


def test_a_class_of_the_test_file_that_training_lacks_is_refused_by_its_line(tmp_path):
    (tmp_path / "test.csv").write_text(CSV.replace("yes", "yes."))
    with pytest.raises(MissingResource, match=r"test\.csv:\d+: column 'label' has 'yes\.', a class that no training"):
        table(tmp_path, CSV, test_file=str(tmp_path / "test.csv"))
    (tmp_path / "test.csv").write_text("\n".join(CSV.split("\n")[:2]) + "\n")  # one class alone is none too many
    assert table(tmp_path, CSV, test_file=str(tmp_path / "test.csv")).classes == ("no", "yes")


def test_a_table_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "people.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MissingResource, match=r"people\.csv.*UTF-8"):
        data.read("table", root=tmp_path, file="people.csv", target="label")


def test_adult_drops_both_columns_of_its_target_and_marks_unknown_files(tmp_path):
    rows = "".join(f"{20 + i},{i % 2},{1 - i % 2},{i % 3 // 2},{1 - i % 3 // 2}\n" for i in range(20))
    (tmp_path / "adult_old.csv").write_text("age,sex_Male,sex_Female,salary_>50K,salary_<=50K\n" + rows)
    found = data.read("adult", root=tmp_path)
    assert found.name == "adult-unverified"
    assert found.columns == ("age", "sex_Male", "sex_Female")
    assert np.array_equal(found.y_train, (found.x_train[:, 0].astype(int) - 20) % 3 // 2)
    assert np.array_equal(found.sensitive_train, found.x_train[:, 1].astype(int))
    assert data.read("adult", root=tmp_path, drop="sex_Male, sex_Female").columns == ("age",)


def test_german_has_its_labels(tmp_path):
    (tmp_path / "german").mkdir()
    (tmp_path / "german" / "german.csv").write_text("month,sex,credit-label\n" + "6,1,0\n8,0,1\n" * 10)
    found = data.read("german", root=tmp_path)
    assert found.columns == ("month", "sex")
    assert np.array_equal(found.y_train, (found.x_train[:, 0] == 8).astype(int))


def paint(folder):
    """Write five pictures, 40 wide and 30 high: a red left edge, a green middle and a blue right edge."""
    folder.mkdir(parents=True)
    pixels = np.zeros((30, 40, 3), np.uint8)
    for i, columns in enumerate((slice(0, 5), slice(5, 35), slice(35, 40))):
        pixels[:, columns, i] = 255
    for i in range(5):
        Image.fromarray(pixels).save(folder / f"{i:06d}.png")


def test_pictures_are_cropped_to_a_centred_square(tmp_path):
    paint(tmp_path / "celeba")
    found = data.read("images", root=tmp_path, folder="celeba", size=10, test_share=0.4)
    assert found.x_train.shape == (3, 3, 10, 10)
    assert found.x_train.dtype == np.uint8
    assert (found.x_train.mean((0, 2, 3)) == [0, 255, 0]).all()  # only the green middle remains
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
    assert [file.path for file in found.files] == [tmp_path / "b", tmp_path / "list.txt"]
    with pytest.raises(UsageError, match=r"'Mal'.*Bald, Male"):
        data.read("images", root=tmp_path, folder="b", attributes="list.txt", attribute="Mal")
    (tmp_path / "list.txt").write_text("\n".join(["5", "Bald Male", *lines[:4]]))
    with pytest.raises(MissingResource, match=r"000004\.png"):
        data.read("images", root=tmp_path, folder="b", attributes="list.txt", attribute="Male")


def _truncate_a_picture(folder):
    path = folder / "000002.png"
    path.write_bytes(path.read_bytes()[:60])


def _add_a_subfolder(folder):
    paint(folder / "more")


def _remove_all(folder):
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "fact"),
    [(_truncate_a_picture, r"000002\.png"), (_add_a_subfolder, "sub-folders"), (_remove_all, "found none")],
)
def test_unusable_folders_of_pictures_are_refused(tmp_path, damage, fact):
    paint(tmp_path / "a")
    damage(tmp_path / "a")
    with pytest.raises(MissingResource, match=fact):
        data.read("images", root=tmp_path, folder="a")


def test_a_crop_larger_than_a_picture_and_a_picture_over_the_limit_are_refused(tmp_path, monkeypatch):
    paint(tmp_path / "a")
    with pytest.raises(MissingResource, match=r"40 x 30.*31"):
        data.read("images", root=tmp_path, folder="a", crop=31)
    monkeypatch.setattr(_formats, "MAX_PIXELS", 1000)
    with pytest.raises(MissingResource, match="1,000"):
        data.read("images", root=tmp_path, folder="a")


@pytest.mark.parametrize("grey", [True, False])
def test_pictures_of_16_bits_are_refused(tmp_path, grey):
    # Pillow turns every value above 255 into 255 where it converts them to bytes
    (tmp_path / "a").mkdir()
    values = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(values).save(tmp_path / "a" / "0.png")
    with pytest.raises(MissingResource, match=r"0\.png: has more than 8 bits"):
        data.read("images", root=tmp_path, folder="a", grey=grey, test_share=0)


def test_digits_equal_those_of_scikit_learn_record_by_record():
    images, labels = load_digits(return_X_y=True)
    found = data.read("digits", test_share=0.0)
    assert (found.x_train.dtype, found.x_train.shape) == (np.float32, (1797, 1, 8, 8))
    assert np.array_equal(found.x_train.reshape(-1, 64) * 16, images)
    assert np.array_equal(found.y_train, labels)
    parts = data.read("digits")
    assert (len(parts.x_train), len(parts.x_test)) == (1438, 359)
    assert parts.fingerprint == "a035a08f7a33c470"  # that of the digits as read by scikit-learn


def test_digits_are_read_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert data.read("digits").fingerprint == "a035a08f7a33c470"


def test_digits_with_another_checksum_are_refused(tmp_path, monkeypatch):
    changed = gzip.decompress(Digits.FILE.read_bytes()).replace(b"0,0,5,13", b"0,0,5,12", 1)
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(changed))
    monkeypatch.setattr(Digits, "FILE", tmp_path / "digits.csv.gz")
    with pytest.raises(MissingResource, match=Digits.SHA256):
        data.read("digits")
    monkeypatch.setattr(Digits, "FILE", tmp_path / "none.csv.gz")
    with pytest.raises(MissingResource, match=r"none\.csv\.gz"):
        data.read("digits")


def test_the_packaged_digits_are_reproducible_from_scikit_learn():
    packed = Digits.FILE.read_bytes()
    content = gzip.decompress(packed)
    assert content == gzip.decompress((resources.files("sklearn.datasets.data") / "digits.csv.gz").read_bytes())
    # the header has neither a time nor a name; its tenth byte is the operating system
    assert packed[:9] == gzip.compress(content, compresslevel=9, mtime=0)[:9]
    assert Digits.SHA256 in Digits.FILE.with_name("digits.LICENSE.txt").read_text()


def data_set(**changed):
    arrays = {
        "x_train": np.zeros((3, 2), np.float32),
        "y_train": np.array([0, 1, 1]),
        "x_test": np.zeros((0, 2), np.float32),
        "y_test": np.zeros(0, int),
    }
    return _dataset.Data(name="d", classes=("a", "b"), source="s", **(arrays | changed))


def test_data_has_sizes_and_may_have_no_test_set():
    found = data_set()
    assert found.records == 3
    assert found.shape == (2,)
    assert found.describe()["test"] == 0


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"x_train": np.full((3, 2), np.nan, np.float32)}, "found nan in example 0"),
        ({"x_train": np.zeros((3, 2))}, "float64.*float32"),
        ({"x_train": np.zeros((3, 2)), "x_test": np.zeros((0, 2))}, "found float64"),
        ({"y_train": np.array([0, 1, 2])}, "found 2 at example 2"),
        ({"y_train": np.array([0, -1, 1])}, "found -1 at example 1"),
        ({"y_train": np.array([0.0, 1, 1])}, "float64"),
        ({"y_train": np.array([[0], [1], [1]])}, r"\[3, 1\]"),
        ({"sensitive_train": np.array([0, 1])}, "2 groups"),
    ],
)
def test_inconsistent_data_is_refused(changed, fact):
    with pytest.raises(MissingResource, match=fact):
        data_set(**changed)


def test_scaled_maps_bytes_to_zero_to_one_and_keeps_floats():
    assert _dataset.scaled(np.array([0, 51, 255], np.uint8)).tolist() == [0.0, np.float32(0.2), 1.0]
    assert _dataset.scaled(np.array([-3.0], np.float32)).tolist() == [-3.0]


@pytest.mark.parametrize("name", ["mnsit", "cifar-10"])
def test_an_unknown_data_set_is_refused_with_a_suggestion(name):
    with pytest.raises(UsageError, match=f"'{name}'; did you mean"):
        data.read(name)


def test_a_picture_is_turned_as_its_camera_says(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    (tmp_path / "one").mkdir()
    # the oracle: the places of the pixels by the meaning of the EXIF tag 274 (TIFF 6.0, Orientation)
    upright = {1: pixels, 3: pixels[::-1, ::-1], 6: np.rot90(pixels, -1), 8: np.rot90(pixels, 1), 2: pixels[:, ::-1]}
    for orientation, expected in upright.items():
        exif = Image.Exif()
        exif[274] = orientation
        Image.fromarray(pixels).save(tmp_path / "one" / "a.png", exif=exif)
        found = data.read("images", folder=str(tmp_path / "one"), size=6, test_share=0)
        assert np.array_equal(found.x_train[0], expected.transpose(2, 0, 1))


@pytest.mark.parametrize("ending", ["gif", "bmp", "webp", "TIF"])
def test_a_picture_that_would_be_left_out_is_refused_by_its_name(tmp_path, ending):
    (tmp_path / "cats").mkdir()
    picture = Image.fromarray(np.zeros((4, 4, 3), np.uint8))
    picture.save(tmp_path / "cats" / "a.png")
    (tmp_path / "cats" / "notes.txt").write_text("no picture")
    assert data.read("images", folder=str(tmp_path), size=4, test_share=0).records == 1
    picture.save(tmp_path / "cats" / f"b.{ending}")
    with pytest.raises(MissingResource, match=rf"b\.{ending}.*left out"):
        data.read("images", folder=str(tmp_path), size=4)
