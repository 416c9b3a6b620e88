"""Public constants that normalise records: one number, or one for each channel, and nothing else."""

from __future__ import annotations

import pytest
import torch

from wpriv.errors import UsageError
from wpriv.tasks._normalisation import Normalise, normalise


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
