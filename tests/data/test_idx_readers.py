"""MNIST and Fashion-MNIST from small IDX files made here, whole and broken in every way."""

from __future__ import annotations

import contextlib
import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wpriv import data
from wpriv.data import _files, _idx
from wpriv.errors import MissingResource

RNG = np.random.default_rng(0)
ARRAYS = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8),
    "train-labels-idx1-ubyte": np.array([0, 9, 3, 3, 1], np.uint8),
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (2, 28, 28), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": np.array([7, 2], np.uint8),
}


def idx(array: np.ndarray) -> bytes:
    """The format as its publishers describe it, written here by itself."""
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write(folder, packed=False, **changed):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ARRAYS.items():
        raw = changed.get(name.partition("-idx")[0].replace("-", "_"), idx(array))
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("packed", [False, True])
def test_what_was_written_is_read_packed_or_not(tmp_path, name, packed):
    write(tmp_path / name, packed)
    found = data.read(name, root=tmp_path, verify=False)
    assert found.x_train.dtype == np.uint8
    assert found.x_train.shape == (5, 1, 28, 28)
    assert np.array_equal(found.x_train[:, 0], ARRAYS["train-images-idx3-ubyte"])
    assert np.array_equal(found.x_test[:, 0], ARRAYS["t10k-images-idx3-ubyte"])
    assert found.y_train.tolist() == [0, 9, 3, 3, 1]
    assert found.y_test.tolist() == [7, 2]
    assert found.x_train.flags.c_contiguous
    assert found.x_test.flags.writeable
    assert found.name == f"{name}-unverified"  # what is not the published data set never passes under its name
    assert len(found.classes) == 10


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_the_usual_folders_are_looked_into(tmp_path, folder):
    write(tmp_path / folder)
    assert data.read("mnist", root=tmp_path, verify=False).records == 5


def test_names_with_a_dot_are_known_as_well(tmp_path):
    write(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    assert data.read("mnist", root=tmp_path, verify=False).records == 5


def test_the_environment_names_the_folder_and_an_argument_goes_before_it(tmp_path, monkeypatch):
    write(tmp_path / "mnist")
    monkeypatch.setenv("WPRIV_DATA", str(tmp_path))
    assert data.read("mnist", verify=False).records == 5
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingResource, match="wanted train-images"):
        data.read("mnist", root=tmp_path / "empty", verify=False)


def test_other_files_than_the_published_ones_are_refused(tmp_path):
    write(tmp_path / "mnist")
    with pytest.raises(
        MissingResource, match=r"not the published file of mnist: wanted content with MD5 6bbc9ace.*verify: false"
    ):
        data.read("mnist", root=tmp_path)


def test_the_packed_and_the_plain_form_have_one_fingerprint_and_other_data_another(tmp_path):
    write(tmp_path / "a"), write(tmp_path / "b", packed=True)
    write(tmp_path / "c", train_labels=idx(np.array([0, 9, 3, 3, 2], np.uint8)))
    a, b, c = (data.read("mnist", root=tmp_path / folder, verify=False).fingerprint for folder in "abc")
    assert a == b != c


def test_a_missing_file_is_named_with_where_and_how(tmp_path):
    write(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(MissingResource) as error:
        data.read("mnist", root=tmp_path)
    assert "it lacks t10k-labels-idx1-ubyte" in str(error.value)
    assert str(tmp_path / "mnist") in str(error.value)
    assert "https://" in str(error.value)
    assert "--data-root" in str(error.value)
    assert error.value.exit_code == 4


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"train_images": b""}, "found nothing"),
        ({"train_images": idx(np.zeros(5, np.uint8))}, "3 axes"),
        ({"train_images": b"\0\0\x0d\x03" + bytes(50)}, "magic 00000803"),
        ({"train_images": b"\0\0\x08\x03\0\0"}, "cut off inside its header"),
        ({"train_images": idx(ARRAYS["train-images-idx3-ubyte"])[:-1]}, "its header tells of 3,920 bytes"),
        ({"train_images": idx(ARRAYS["train-images-idx3-ubyte"]) + b"x"}, "found 3,921"),
        ({"train_images": b"\0\0\x08\x03" + b"\xff" * 12}, "its header tells of"),
        (
            {"train_labels": idx(np.array([0, 10, 3, 3, 1], np.uint8))},
            "labels must lie from 0 to 9; found 10 at example 1",
        ),
        ({"train_labels": idx(np.zeros(4, np.uint8))}, "5 examples have 4 labels"),
        (
            {"train_images": idx(np.zeros((0, 28, 28), np.uint8)), "train_labels": idx(np.zeros(0, np.uint8))},
            "the training set is empty",
        ),
        ({"t10k_images": idx(np.zeros((2, 27, 28), np.uint8))}, "one type and shape"),
    ],
)
def test_broken_files_are_told_in_words(tmp_path, changed, told):
    write(tmp_path / "mnist", **changed)
    with pytest.raises(MissingResource) as error:
        data.read("mnist", root=tmp_path, verify=False)
    assert told in str(error.value)


def test_a_gzip_bomb_stops_at_the_limit(tmp_path, monkeypatch):
    write(tmp_path / "mnist", packed=True)
    monkeypatch.setattr(_idx, "LIMIT", 1_000_000)
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(MissingResource, match="more than 1,000,000 bytes when unpacked"):
        data.read("mnist", root=tmp_path, verify=False)


def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(tmp_path):
    (tmp_path / "f").write_bytes(bytes(100))
    assert len(_files.content(tmp_path / "f", 100)) == 100
    with pytest.raises(MissingResource, match="more than 99 bytes"):
        _files.content(tmp_path / "f", 99)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(cut=st.integers(0, 3935), packed=st.booleans())
def test_no_truncation_passes(tmp_path, cut, packed):
    whole = idx(ARRAYS["train-images-idx3-ubyte"])
    whole = gzip.compress(RNG.bytes(0) + whole, mtime=0) if packed else whole
    write(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(whole[: cut % len(whole)])
    with pytest.raises(MissingResource):
        data.read("mnist", root=tmp_path, verify=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(place=st.integers(0, 3935), value=st.integers(0, 255), packed=st.booleans())
def test_a_changed_byte_is_refused_or_changes_pixels_only(tmp_path, place, value, packed):
    whole = bytearray(idx(ARRAYS["train-images-idx3-ubyte"]))
    whole = bytearray(gzip.compress(bytes(whole), mtime=0)) if packed else whole
    whole[place % len(whole)] = value
    write(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(bytes(whole))
    with contextlib.suppress(MissingResource):
        assert data.read("mnist", root=tmp_path, verify=False).x_train.size == 5 * 28 * 28
