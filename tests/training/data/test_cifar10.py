"""CIFAR-10 from small files of both official formats; unpickling executes nothing."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from wpriv.errors import MissingResource
from wpriv.training import data
from wpriv.training.data import _formats as cifar10

RNG = np.random.default_rng(1)
IMAGES = RNG.integers(0, 256, (6, 3, 3, 32, 32), dtype=np.uint8)  # six batches of three
LABELS = RNG.integers(0, 10, (6, 3))


def as_python(folder, protocol=2, changed=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, x, y in zip(cifar10.PICKLES, IMAGES, LABELS, strict=True):
        batch = {
            b"data": x.reshape(3, -1),
            b"labels": y.tolist(),
            b"batch_label": b"some",
            b"filenames": [b"a.png"] * 3,
        }
        (folder / name).write_bytes(pickle.dumps({**batch, **(changed or {})}, protocol=protocol))


def as_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, x, y in zip(cifar10.BINARIES, IMAGES, LABELS, strict=True):
        (folder / name).write_bytes(
            b"".join(bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True))
        )


def as_pictures(folder, labels=LABELS):
    folder.mkdir(parents=True, exist_ok=True)
    for name, x in zip(cifar10.PICTURES, IMAGES, strict=False):
        Image.fromarray(x.reshape(3, 3, 1024).transpose(0, 2, 1)).save(folder / name)
    (folder / "train_lables.json").write_text(json.dumps(labels[:5].ravel().tolist()))
    (folder / "test_lables.json").write_text(json.dumps(labels[5].tolist()))


def check(found):
    assert found.x_train.dtype == np.uint8
    assert np.array_equal(found.x_train, IMAGES[:5].reshape(15, 3, 32, 32))
    assert np.array_equal(found.x_test, IMAGES[5])
    assert np.array_equal(found.y_train, LABELS[:5].ravel())
    assert np.array_equal(found.y_test, LABELS[5])
    assert found.classes[6] == "frog"


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifar10_pickles_are_read(tmp_path, protocol):
    as_python(tmp_path / "cifar-10-batches-py", protocol)
    check(data.read("cifar10", root=tmp_path, verify=False))


def test_pickles_of_python_2_are_read():
    # as numpy 1.x wrote it under Python 2: byte strings, numpy.core, protocol 2
    raw = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        b"K\x00\x85U\x01b\x87R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + bytes(range(256)) * 12
        + b"tbU\x06labels](K\x06eu."
    )
    x, y = cifar10.parse_pickle(raw, "data_batch_1")
    assert x.ravel().tolist() == list(range(256)) * 12
    assert y.tolist() == [6]


def test_cifar10_binary_files_are_read(tmp_path):
    as_binary(tmp_path / "cifar10" / "cifar-10-batches-bin")
    check(data.read("cifar10", root=tmp_path, verify=False))


def test_cifar10_pictures_are_read(tmp_path):
    as_pictures(tmp_path / "cifar10")
    check(data.read("cifar10", root=tmp_path, verify=False))


def test_pictures_that_do_not_hold_the_published_records_are_refused(tmp_path):
    as_pictures(tmp_path / "cifar10")
    with pytest.raises(MissingResource, match=r"not the published file of cifar10: wanted content with MD5 5dd7"):
        data.read("cifar10", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_2.png", b"no picture", "not a complete picture"),
        ("train_lables.json", b"[1, 2", "not complete JSON"),
        ("train_lables.json", b"[10]", "labels from 0 to 9"),
        ("train_lables.json", b"[1, 2, 3]", "0 labels for the 3 records of data_batch_2.png"),
        ("train_lables.json", json.dumps([1] * 16).encode(), "a label for each of 15 records; found 16"),
        ("test_lables.json", b"[1]", "1 labels for the 3 records of test_batch.png"),
    ],
)
def test_damaged_pictures_and_labels_are_refused_by_name(tmp_path, name, content, message):
    as_pictures(tmp_path / "cifar10")
    (tmp_path / "cifar10" / name).write_bytes(content)
    with pytest.raises(MissingResource, match=message):
        data.read("cifar10", root=tmp_path, verify=False)


def test_a_picture_of_another_width_is_refused(tmp_path):
    as_pictures(tmp_path / "cifar10")
    Image.new("RGB", (32, 96)).save(tmp_path / "cifar10" / "test_batch.png")
    with pytest.raises(MissingResource, match="wanted a colour picture 1024 pixels wide; found RGB, 32 wide"):
        data.read("cifar10", root=tmp_path, verify=False)


def test_cifar10_formats_have_the_same_fingerprint(tmp_path):
    as_python(tmp_path / "a"), as_binary(tmp_path / "b"), as_pictures(tmp_path / "c")
    assert len({data.read("cifar10", root=tmp_path / folder, verify=False).fingerprint for folder in "abc"}) == 1


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    "thing",
    [
        Runs(),
        np.arange(3),
        {b"data": np.zeros((1, 3072)), b"labels": [0]},
        {b"data": np.array([Runs()]), b"labels": [0]},
    ],
)
def test_pickles_of_other_objects_are_refused_and_execute_nothing(thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingResource):
        cifar10.parse_pickle(pickle.dumps(thing, protocol=2), "p")
    assert not (tmp_path / "ran").exists()


def test_the_error_names_what_a_pickle_must_not_use():
    with pytest.raises(MissingResource, match=r"posix\.system"):
        cifar10.parse_pickle(pickle.dumps(Runs()), "p")


@pytest.mark.parametrize(
    "changed",
    [
        {b"labels": [1, 2]},
        {b"labels": [1, 2, 10]},
        {b"labels": [1, 2, -1]},
        {b"labels": [1, 2, 2**70]},
        {b"labels": [1, 2, 0.5]},
        {b"data": b"x"},
        {b"data": np.zeros((3, 7), np.uint8)},
    ],
)
def test_malformed_batches_are_refused(tmp_path, changed):
    as_python(tmp_path, changed=changed)
    with pytest.raises(MissingResource):
        data.read("cifar10", root=tmp_path, verify=False)


def test_a_batch_whose_labels_do_not_fit_is_refused_though_another_one_makes_up_for_it():
    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}
    with pytest.raises(MissingResource, match="N integers"):
        cifar10.parse_pickle(pickle.dumps(batch, protocol=2), "p")


def test_unpublished_cifar10_files_are_refused(tmp_path):
    as_python(tmp_path / "a"), as_binary(tmp_path / "b")
    for folder in "ab":
        with pytest.raises(MissingResource, match=r"cifar10.*MD5"):
            data.read("cifar10", root=tmp_path / folder)


PICKLE = pickle.dumps({b"data": IMAGES[0, :1].reshape(1, -1), b"labels": [3]}, protocol=2)


@settings(deadline=None, max_examples=150)
@given(cut=st.integers(0, len(PICKLE) - 1))
def test_truncated_pickles_are_refused(cut):
    with pytest.raises(MissingResource):
        cifar10.parse_pickle(PICKLE[:cut], "p")


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(place=st.one_of(st.integers(0, 250), st.integers(0, len(PICKLE) - 1)), value=st.integers(0, 255))
def test_a_changed_byte_in_a_pickle_gives_a_batch_or_missing_resource(place, value):
    raw = bytearray(PICKLE)
    raw[place] = value
    try:
        x, y = cifar10.parse_pickle(bytes(raw), "p")
        assert x.shape[1:] == (3, 32, 32)
        assert y.dtype == np.int64
    except MissingResource:
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(cut=st.integers(0, 3 * 3073 - 1))
def test_a_truncated_binary_is_read_only_if_cut_at_a_record(tmp_path, cut):
    as_binary(tmp_path)
    content = (tmp_path / "test_batch.bin").read_bytes()
    (tmp_path / "test_batch.bin").write_bytes(content[:cut])
    if cut and cut % 3073 == 0:
        assert len(data.read("cifar10", root=tmp_path, verify=False).x_test) == cut // 3073
    else:
        with pytest.raises(MissingResource, match="3073 bytes"):
            data.read("cifar10", root=tmp_path, verify=False)
