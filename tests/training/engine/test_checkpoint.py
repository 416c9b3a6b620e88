"""Writing checkpoints: what a failed write leaves behind."""

from __future__ import annotations

import resource

import pytest
import torch

from wpriv.errors import MissingResource
from wpriv.files import checkpoint


@pytest.mark.parametrize("limit", [100, 2000, 200_000])
def test_a_full_disk_is_an_error_of_the_environment_and_leaves_no_part_with_the_key_of_the_noise(tmp_path, limit):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, {"weights": {}})
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # Python ignores the signal, and writing fails
    try:
        with pytest.raises(MissingResource):
            checkpoint.save(path, {"weights": {str(k): torch.zeros(100_000) for k in range(3)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before
