"""SVHN, USPS and features from small MATLAB, LIBSVM and .npz files."""

from __future__ import annotations

import bz2

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat
from scipy.sparse import csc_matrix

from wpriv.errors import MissingResource, UsageError
from wpriv.training import data

RNG = np.random.default_rng(2)
X = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
Y = np.array([[10], [1], [9], [10]], np.uint8)


def svhn(folder, **changed):
    savemat(folder / "train_32x32.mat", {"X": X, "y": Y} | changed, do_compression=True)
    savemat(folder / "test_32x32.mat", {"X": X[..., :1], "y": Y[:1]})
    return data.read("svhn", root=folder, verify=False)


def test_svhn_axes_are_transposed_and_label_ten_is_zero(tmp_path):
    found = svhn(tmp_path)
    assert found.x_train.shape == (4, 3, 32, 32)
    assert found.x_train[2, 1, 5, 7] == X[5, 7, 1, 2]
    assert found.y_train.tolist() == [0, 1, 9, 0]
    assert found.x_test.shape == (1, 3, 32, 32)
    assert found.name == "svhn-unverified"
    with pytest.raises(MissingResource, match=r"svhn.*MD5"):
        data.read("svhn", root=tmp_path)


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"y": np.array([[11], [1], [9], [10]], np.uint8)}, "1 to 11"),
        ({"y": np.array([[0], [1], [9], [10]], np.uint8)}, "0 to 10"),
        ({"y": np.array([[np.nan], [1], [9], [10]])}, "nan to nan"),
        ({"y": Y[:3]}, "3 labels"),
        ({"X": X.astype(float)}, "float64"),
        ({"X": X[:31]}, r"\[31, 32, 3, 4\]"),
    ],
)
def test_wrong_svhn_arrays_are_refused(tmp_path, changed, fact):
    with pytest.raises(MissingResource, match=fact):
        svhn(tmp_path, **changed)


def test_matlab_files_without_the_arrays_or_of_version_7_3_are_refused(tmp_path):
    svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"Z": X})
    with pytest.raises(MissingResource, match=r"X, y.*Z"):
        data.read("svhn", root=tmp_path, verify=False)
    (tmp_path / "train_32x32.mat").write_bytes(b"MATLAB 7.3 MAT-file" + bytes(600))
    with pytest.raises(MissingResource, match=r"7\.3"):
        data.read("svhn", root=tmp_path, verify=False)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_matlab_files_are_refused(tmp_path, share):
    svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(MissingResource):
        data.read("svhn", root=tmp_path, verify=False)


IMAGES = RNG.integers(0, 3, (5, 16, 16)) / 2.0  # in [0, 1], as the reader returns them
DIGITS = np.array([6, 0, 9, 1, 1])


def usps(folder, kind, images=IMAGES, digits=DIGITS):
    if kind == "mat":
        columns = np.stack([2 * image.ravel(order="F") for image in images], axis=1)
        labels = digits[None].astype(np.uint8)
        savemat(folder / "usps.mat", {"Xt": columns, "Lt": labels, "Xs": columns[:, :2], "Ls": labels[:, :2]})
    else:
        lines = [
            f"{d + 1} " + " ".join(f"{i + 1}:{2 * v - 1:.6f}" for i, v in enumerate(x.ravel()))
            for x, d in zip(images, digits, strict=True)
        ]
        (folder / "usps.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
        (folder / "usps.t.bz2").write_bytes(bz2.compress("\n".join(lines[:2]).encode()))
    return data.read("usps", root=folder, verify=False)


@pytest.mark.parametrize("kind", ["mat", "libsvm"])
def test_usps_images_are_upright_and_in_zero_to_one_from_both_formats(tmp_path, kind):
    found = usps(tmp_path, kind)
    assert found.x_train.dtype == np.float32
    np.testing.assert_allclose(found.x_train[:, 0], IMAGES, atol=1e-6)
    assert found.x_train.flags.c_contiguous
    assert found.x_test.flags.writeable
    assert found.y_train.tolist() == DIGITS.tolist()
    assert found.x_test.shape == (2, 1, 16, 16)


def test_a_value_that_a_libsvm_file_leaves_out_is_zero_which_is_medium_grey(tmp_path):
    # the format is sparse: in LIBSVM a feature without a value is 0, and pixels are from -1 to 1
    line = "4 1:-1 3:1 256:0.5"
    for name in ("usps.bz2", "usps.t.bz2"):
        (tmp_path / name).write_bytes(bz2.compress(line.encode()))
    image = data.read("usps", root=tmp_path, verify=False).x_train[0, 0].ravel()
    assert image[[0, 1, 2, 255]].tolist() == [0.0, 0.5, 1.0, 0.75]
    assert set(image[3:255].tolist()) == {0.5}


@pytest.mark.parametrize("kind", ["mat", "libsvm"])
@pytest.mark.parametrize(
    ("images", "digits", "fact"),
    [
        (IMAGES * np.nan, DIGITS, "nan to nan"),
        (IMAGES * 2, DIGITS, "to 2"),
        (IMAGES, DIGITS + 2, "found 11 at example 2"),
    ],
)
def test_usps_numbers_out_of_range_are_refused(tmp_path, kind, images, digits, fact):
    with pytest.raises(MissingResource, match=fact):
        usps(tmp_path, kind, images, digits)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"x", bz2.compress(b"1 257:0.5"), bz2.compress(b"1 a:0.5"), bz2.compress(b"7 1:0.5\n" * 99)[:-9]),
        bz2.compress(b"7 1:0.5\n") * 2,  # of which bz2 unpacks the first part alone
    ],
)
def test_damaged_libsvm_files_are_refused(tmp_path, raw):
    usps(tmp_path, "libsvm")
    (tmp_path / "usps.bz2").write_bytes(raw)
    with pytest.raises(MissingResource, match="LIBSVM"):
        data.read("usps", root=tmp_path, verify=False)


ROWS = RNG.normal(size=(20, 7))
LABELS = np.array([3, 1, 31, 1] * 5)


@pytest.mark.parametrize("ending", ["npz", "mat"])
def test_features_are_found_by_shape_and_labels_keep_their_numbers(tmp_path, ending):
    save = (lambda p, a: np.savez(p, **a)) if ending == "npz" else savemat
    save(tmp_path / f"office.{ending}", {"fts": ROWS, "labels": LABELS[:, None]})
    found = data.read("features", file=str(tmp_path / f"office.{ending}"))
    assert found.name == "features:office"
    assert found.classes == tuple(map(str, range(32)))
    assert (len(found.x_train), len(found.x_test)) == (16, 4)
    rows = np.concatenate([found.x_train, found.x_test])
    labels = np.concatenate([found.y_train, found.y_test])
    for row, label in zip(rows, labels, strict=True):
        place = int(np.argmin(np.abs(ROWS - row).sum(1)))
        np.testing.assert_allclose(ROWS[place], row, rtol=1e-6)
        assert str(LABELS[place]) == found.classes[label]
    assert found.notes


def test_sparse_features_of_matlab_are_read_with_their_zeros(tmp_path):
    rows = np.where(ROWS > 0, ROWS, 0.0)
    savemat(tmp_path / "s.mat", {"fts": csc_matrix(rows), "labels": LABELS[:, None]})
    found = data.read("features", file=str(tmp_path / "s.mat"), test_share=0)
    np.testing.assert_array_equal(found.x_train, rows.astype(np.float32))


def test_features_take_a_test_file_instead_of_a_split(tmp_path):
    np.savez(tmp_path / "a.npz", x=ROWS, y=LABELS)
    np.savez(tmp_path / "b.npz", x=ROWS[:3], y=LABELS[:3])
    found = data.read("features", root=tmp_path, file="a.npz", test_file="b.npz")
    assert (len(found.x_train), len(found.x_test)) == (20, 3)


@pytest.mark.parametrize(
    ("arrays", "given", "error", "fact"),
    [
        ({"a": ROWS, "b": ROWS, "y": LABELS}, {}, UsageError, "2 arrays.*features"),
        (
            {"x": ROWS, "y": LABELS},
            {"features": "z"},
            UsageError,
            r"'z'.*x \[20, 7\], y \[20\]",
        ),
        ({"x": ROWS}, {}, UsageError, "0 arrays.*labels"),
        ({"x": ROWS[:1], "scale": 2.0}, {"features": "x"}, UsageError, "0 arrays.*labels"),
        ({"x": ROWS, "y": 2.0}, {"features": "y"}, UsageError, "0 arrays.*labels"),
        ({"x": ROWS, "y": LABELS + 0.5}, {}, MissingResource, "integer labels"),
        ({"x": ROWS, "y": LABELS * np.nan}, {}, MissingResource, "integer labels"),
        ({"x": np.where(ROWS > 2, np.nan, ROWS) * np.inf, "y": LABELS}, {}, MissingResource, "found .*(inf|nan)"),
        ({"x": ROWS, "y": np.array([None] * 20)}, {}, MissingResource, r"\.npz"),
        ({"x": ROWS, "y": LABELS}, {"test_share": 1}, MissingResource, "none of 20"),
        ({"x": ROWS, "y": LABELS}, {"test_shar": 1}, UsageError, "did you mean 'test_share'"),
    ],
)
def test_unusable_features_are_refused(tmp_path, arrays, given, error, fact):
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(error, match=fact):
        data.read("features", root=tmp_path, file="f.npz", **given)


def test_features_need_an_existing_file(tmp_path):
    with pytest.raises(UsageError, match="file"):
        data.read("features")
    with pytest.raises(MissingResource, match=r"f\.npz"):
        data.read("features", root=tmp_path, file="f.npz")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_npz_files_are_refused(tmp_path, share):
    np.savez_compressed(tmp_path / "f.npz", x=ROWS, y=LABELS)
    raw = (tmp_path / "f.npz").read_bytes()
    (tmp_path / "f.npz").write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(MissingResource):
        data.read("features", root=tmp_path, file="f.npz")
