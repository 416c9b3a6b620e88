"""The data set ``pair``: a public source and a private target, converted to the same form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wpriv.errors import MissingResource, UsageError
from wpriv.training import data


@pytest.fixture
def files(tmp_path):
    """Two small files of features with the same three classes."""
    rng = np.random.default_rng(0)
    for name, count in (("one", 30), ("two", 20)):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(count, 4)), y=np.arange(count) % 3)
    return tmp_path


def test_pair_counts_the_target_and_keeps_the_source_beside_it(files):
    found = data.read("pair", root=files, source="one.npz", target="two.npz", test_share=0.25)
    assert (found.records, len(found.x_test), found.shape) == (15, 5, (4,))
    assert (found.source_set.records, len(found.source_set.x_test)) == (30, 0)
    assert found.name == "features:one-to-features:two"


def test_the_fingerprint_of_a_pair_depends_on_both(files):
    there = data.read("pair", root=files, source="one.npz", target="two.npz")
    back = data.read("pair", root=files, source="two.npz", target="one.npz")
    assert there.fingerprint != back.fingerprint
    assert there.fingerprint.startswith(there.source_set.fingerprint)


def test_a_limit_applies_to_both(files):
    found = data.read("pair", root=files, source="one.npz", target="two.npz").limited(7)
    assert (found.records, found.source_set.records) == (7, 7)


def test_a_limit_without_tests_keeps_all_test_records(files):
    found = data.read("pair", root=files, source="one.npz", target="two.npz", test_share=0.25).limited(4, tests=False)
    assert (found.records, len(found.x_test), found.source_set.records) == (4, 5, 4)


def test_images_are_interpolated_as_torch_does_it():
    # scikit-learn's digits are 8x8; the oracle is torch's bilinear interpolation between pixel centres
    small = data.read("digits")
    found = data.read("pair", source="digits", target="digits", side=28)
    expected = torch.nn.functional.interpolate(
        torch.tensor(data.scaled(small.x_train[:20])), size=(28, 28), mode="bilinear", align_corners=False
    )
    assert found.x_train.shape[1:] == (1, 28, 28)
    np.testing.assert_allclose(found.x_train[:20], expected.numpy(), atol=2e-6)


def test_images_of_the_requested_size_are_unchanged():
    small = data.read("digits")
    found = data.read("pair", source="digits", target="digits", side=8)
    assert found.x_train.dtype == small.x_train.dtype
    np.testing.assert_array_equal(found.x_train, small.x_train)


def test_colour_images_become_grey_by_luminance():
    from wpriv.training.data.pair import _resize

    white = np.full((1, 3, 4, 4), 255, np.uint8)
    np.testing.assert_allclose(_resize(white, 4, True), np.ones((1, 1, 4, 4)), atol=1e-6)
    green = np.zeros((1, 3, 4, 4), np.float32)
    green[:, 1] = 1
    np.testing.assert_allclose(_resize(green, 4, True), np.full((1, 1, 4, 4), 0.587), atol=1e-6)


def test_the_error_names_a_missing_file_of_a_pair(files):
    with pytest.raises(MissingResource, match="dslr_resnet50"):
        data.read("pair", root=files, source="one.npz", target="dslr_resnet50.mat")


@pytest.mark.parametrize(
    ("source", "target", "fact"),
    [
        ("digits", "one.npz", "classes"),
        ("pair", "one.npz", "source.*'pair'"),
        ("nosuch", "one.npz", "nosuch"),
    ],
)
def test_data_sets_that_form_no_pair_are_refused(files, source, target, fact):
    with pytest.raises(UsageError, match=fact):
        data.read("pair", root=files, source=source, target=target)
