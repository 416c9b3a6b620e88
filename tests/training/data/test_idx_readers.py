"""MNIST and Fashion-MNIST from small IDX files, intact and damaged."""

from __future__ import annotations

import contextlib
import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wpriv.errors import MissingResource
from wpriv.training import data
from wpriv.training.data import _files

RNG = np.random.default_rng(0)
ARRAYS = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8),
    "train-labels-idx1-ubyte": np.array([0, 9, 3, 3, 1], np.uint8),
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (2, 28, 28), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": np.array([7, 2], np.uint8),
}


def idx(array: np.ndarray) -> bytes:
    """Write the format as its publishers describe it, independently of the reader."""
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write(folder, packed=False, **changed):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ARRAYS.items():
        raw = changed.get(name.partition("-idx")[0].replace("-", "_"), idx(array))
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read_gzipped_or_not(tmp_path, name, packed):
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
    assert found.name == f"{name}-unverified"  # other files never go by the name of the published data set
    assert len(found.classes) == 10


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_the_usual_folders_are_searched(tmp_path, folder):
    write(tmp_path / folder)
    assert data.read("mnist", root=tmp_path, verify=False).records == 5


def test_file_names_with_a_dot_are_accepted(tmp_path):
    write(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    assert data.read("mnist", root=tmp_path, verify=False).records == 5


def test_a_root_argument_takes_precedence_over_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "mnist")
    monkeypatch.setenv("WPRIV_DATA", str(tmp_path))
    assert data.read("mnist", verify=False).records == 5
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingResource, match="train-images"):
        data.read("mnist", root=tmp_path / "empty", verify=False)


def test_unpublished_files_are_refused_with_the_expected_checksum(tmp_path):
    write(tmp_path / "mnist")
    with pytest.raises(MissingResource, match=r"mnist.*6bbc9ace.*verify: false"):
        data.read("mnist", root=tmp_path)


def test_the_fingerprint_depends_on_the_data_not_on_gzip(tmp_path):
    write(tmp_path / "a"), write(tmp_path / "b", packed=True)
    write(tmp_path / "c", train_labels=idx(np.array([0, 9, 3, 3, 2], np.uint8)))
    a, b, c = (data.read("mnist", root=tmp_path / folder, verify=False).fingerprint for folder in "abc")
    assert a == b != c


def test_the_error_names_a_missing_file_its_folder_and_a_source(tmp_path):
    write(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(MissingResource) as error:
        data.read("mnist", root=tmp_path)
    assert "t10k-labels-idx1-ubyte" in str(error.value)
    assert str(tmp_path / "mnist") in str(error.value)
    assert "https://" in str(error.value)
    assert "`data_root`" in str(error.value)
    assert error.value.exit_code == 4


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"train_images": b""}, "magic 00000803"),
        ({"train_images": idx(np.zeros(5, np.uint8))}, "magic 00000803"),
        ({"train_images": b"\0\0\x0d\x03" + bytes(50)}, "magic 00000803"),
        ({"train_images": b"\0\0\x08\x03\0\0"}, "6 bytes of 16"),
        ({"train_images": idx(ARRAYS["train-images-idx3-ubyte"])[:-1]}, "3,919"),
        ({"train_images": idx(ARRAYS["train-images-idx3-ubyte"]) + b"x"}, "3,921"),
        ({"train_images": b"\0\0\x08\x03" + b"\xff" * 12}, "[4294967295, 4294967295, 4294967295]"),
        ({"train_labels": idx(np.array([0, 10, 3, 3, 1], np.uint8))}, "10 at example 1"),
        ({"train_labels": idx(np.zeros(4, np.uint8))}, "4 labels"),
        (
            {"train_images": idx(np.zeros((0, 28, 28), np.uint8)), "train_labels": idx(np.zeros(0, np.uint8))},
            "training set is empty",
        ),
        ({"t10k_images": idx(np.zeros((2, 27, 28), np.uint8))}, "[2, 1, 27, 28]"),
    ],
)
def test_damaged_idx_files_are_refused_with_the_reason(tmp_path, changed, fact):
    write(tmp_path / "mnist", **changed)
    with pytest.raises(MissingResource) as error:
        data.read("mnist", root=tmp_path, verify=False)
    assert fact in str(error.value)


def test_a_gzip_bomb_is_refused_at_the_limit(tmp_path, monkeypatch):
    write(tmp_path / "mnist", packed=True)
    monkeypatch.setattr(data.DECLARED["mnist"], "LIMIT", 1_000_000)
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(MissingResource, match="1,000,000 bytes"):
        data.read("mnist", root=tmp_path, verify=False)


def test_read_bytes_accepts_the_limit_and_refuses_one_byte_more(tmp_path):
    (tmp_path / "f").write_bytes(bytes(100))
    assert len(_files.read_bytes(tmp_path / "f", 100)) == 100
    with pytest.raises(MissingResource, match="99 bytes"):
        _files.read_bytes(tmp_path / "f", 99)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(cut=st.integers(0, 3935), packed=st.booleans())
def test_truncated_idx_files_are_refused(tmp_path, cut, packed):
    content = idx(ARRAYS["train-images-idx3-ubyte"])
    content = gzip.compress(content, mtime=0) if packed else content
    write(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(content[: cut % len(content)])
    with pytest.raises(MissingResource):
        data.read("mnist", root=tmp_path, verify=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(place=st.integers(0, 3935), value=st.integers(0, 255), packed=st.booleans())
def test_a_changed_byte_is_refused_or_changes_pixels_only(tmp_path, place, value, packed):
    content = bytearray(idx(ARRAYS["train-images-idx3-ubyte"]))
    content = bytearray(gzip.compress(bytes(content), mtime=0)) if packed else content
    content[place % len(content)] = value
    write(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(bytes(content))
    with contextlib.suppress(MissingResource):
        assert data.read("mnist", root=tmp_path, verify=False).x_train.size == 5 * 28 * 28
