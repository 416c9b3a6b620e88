"""Public constants that normalise records: one number, or one for each channel, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wpriv.errors import UsageError
from wpriv.training import data
from wpriv.training.tasks import _supervised
from wpriv.training.tasks._image_features import Normalise
from wpriv.training.tasks._image_filters import normalise


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.25]), ([0.5, 0.5, 0.5], [0.25]), ([0.5], [0.25, 0.25, 0.25])])
def test_one_number_stands_for_all_channels(mean, std):
    x = torch.rand(4, 3, 2, 2)
    assert torch.equal(normalise(x, Normalise(mean=mean, std=std)), (x - 0.5) / 0.25)


@pytest.mark.parametrize("shape", [(4, 1, 2, 2), (4, 1), (4, 2, 5, 5)])
@pytest.mark.parametrize("key", ["mean", "std"])
def test_another_number_of_constants_than_of_channels_is_refused(shape, key):
    constants = Normalise(**{"mean": [0.0], "std": [1.0], key: [1.0, 2.0, 3.0]})
    with pytest.raises(UsageError, match=rf"{key}.*{shape[1]} channels.*found 3"):
        normalise(torch.rand(shape), constants)


@pytest.mark.parametrize("reader", ["arrays", "table"])
def test_large_numbers_that_differ_little_are_normalised_before_they_become_float32(tmp_path, reader):
    seconds = 1.7e9 + np.arange(60.0)  # float32 has only multiples of 128 there
    labels = np.arange(60) % 2
    if reader == "arrays":
        np.savez(tmp_path / "t.npz", x=np.stack([seconds, labels], 1), y=labels)
        read = data.read("arrays", file=str(tmp_path / "t.npz"), test_share=0.25)
    else:
        rows = "".join(f"{s:.0f},{k},{k}\n" for s, k in zip(seconds, labels, strict=True))
        (tmp_path / "t.csv").write_text("time,k,label\n" + rows)
        read = data.read("table", file=str(tmp_path / "t.csv"), target="label", test_share=0.25)
    options = _supervised.InputOptions(normalise={"mean": [1.7e9, 0.0], "std": [10.0, 1.0]})
    inputs = [_supervised.to_inputs(x, options, torch.device("cpu")) for x in (read.x_train, read.x_test)]
    assert all(part.dtype == torch.float32 for part in inputs)
    # the oracle: the numbers of the file, normalised by hand in float64
    expected = np.sort((seconds - 1.7e9) / 10)
    np.testing.assert_allclose(np.sort(torch.cat(inputs)[:, 0].numpy()), expected, atol=1e-6)


def test_other_numbers_stay_float32_as_they_were():
    for x in (np.random.default_rng(0).normal(size=(50, 3)) * [1e-5, 1, 1e9], np.full((50, 3), 1e9 / 3)[:, :1] * 0 + 7):
        loaded = data.of_arrays("a", (x, np.arange(50) % 2), None, source="a test")
        assert loaded.x_train.dtype == np.float32
