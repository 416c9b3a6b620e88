"""NumPy array files: plain arrays of limited size only."""

import io
import zipfile

import numpy as np
import pytest

from wpriv.files import array_files


def test_npz_returns_arrays_by_name_from_a_path_and_from_an_open_file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3), y=np.eye(2))
    for source in (path, io.BytesIO(path.read_bytes())):
        arrays = array_files.npz(source, 10_000)
        assert sorted(arrays) == ["x", "y"]
        np.testing.assert_array_equal(arrays["x"], [0, 1, 2])


def test_npz_refuses_a_file_that_unpacks_to_more_than_the_limit(tmp_path):
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros(10**6))
    assert path.stat().st_size < 10**5
    with pytest.raises(ValueError, match="1,000,000"):
        array_files.npz(path, 10**6)


def test_npz_refuses_pickled_objects_and_damaged_files(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        array_files.npz(path, 10**6)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(array_files.DAMAGED):
        array_files.npz(path, 10**6)


def test_npz_refuses_a_member_that_is_no_array(tmp_path):
    path = tmp_path / "more.npz"
    np.savez(path, x=np.arange(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "a text")
    with pytest.raises(ValueError, match=r"README\.txt"):
        array_files.npz(path, 10_000)
