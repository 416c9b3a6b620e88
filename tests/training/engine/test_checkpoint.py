"""Writing checkpoints: what a failed write leaves behind."""

from __future__ import annotations

import resource

import pytest
import torch

from wpriv.errors import MissingResource, UsageError
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


def content(**further: object) -> dict[str, object]:
    network = torch.nn.Linear(3, 2)
    position = {"identity": "a", "run": 1, "ledger": {"lines": 2, "digest": "b"}, "clear": False}
    return {**position, "weights": network.state_dict(), **further}


def test_the_plain_data_of_a_file_is_read_without_its_tensors(tmp_path):
    path, numbers = tmp_path / "model.pt", {"rows": "[1]", "rate": 0.5, "nested": [{"t": torch.ones(2)}, None, True]}
    checkpoint.save(path, content(**numbers))
    plain, whole = checkpoint.load_without_tensors(path), checkpoint.load(path)
    assert plain.keys() == whole.keys()
    assert plain["weights"] == dict.fromkeys(whole["weights"])
    assert plain["nested"] == [{"t": None}, None, True]
    kept = [name for name in whole if name not in ("weights", "nested")]
    assert all(plain[name] == whole[name] for name in kept)


class Command:
    """A pickled object that would create a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


def test_reading_without_tensors_runs_no_code_and_finds_damage_of_tensors(tmp_path):
    path, trace = tmp_path / "model.pt", tmp_path / "trace"
    checkpoint.save(path, content(other=Command(trace)))
    with pytest.raises(UsageError, match="something other than tensors and plain data"):
        checkpoint.load_without_tensors(path)
    assert not trace.exists()
    checkpoint.save(path, content(large=torch.full((1000,), 7.0)))
    written = path.read_bytes()
    place = written.index(torch.full((8,), 7.0).numpy().tobytes())
    for damaged in (written[:place] + b"x" + written[place + 1 :], written[: len(written) // 2], b""):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="damaged or cut short"):
            checkpoint.load_without_tensors(path)
