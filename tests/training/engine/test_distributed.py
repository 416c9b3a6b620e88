"""Two processes are one: every record drawn once, noise added once, the same weights in each."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import forked
from tests.points import ROOT
from tests.training.engine.toys import engine, schedule, weights
from wpriv.accounting import ledger
from wpriv.files import checkpoint
from wpriv.training.engine.saved_weights import LEDGER, MODEL

pytestmark = pytest.mark.slow

SCRIPT = """
import sys; sys.path.insert(0, {root!r})
import torch
from pathlib import Path
from tests.training.engine.toys import engine
from tests.training.engine.toys import schedule
from tests.training.engine.toys import weights
from wpriv.training.engine import distributed
distributed.join()
assert distributed.size() == 2
from wpriv.errors import Interrupted
own = engine(Path({folder!r}), schedule(15, **{plan!r}), seed=4)
try:
    own.run(stop=lambda: "a test" if own.steps_done == {stop!r} else None)
except Interrupted:
    torch.distributed.barrier()  # the main process writes the checkpoint
torch.save(weights(own), Path({folder!r}) / f"rank{{distributed.rank()}}.pt")
distributed.leave()
"""

GRID = """
import sys; sys.path.insert(0, {root!r})
import torch
from pathlib import Path
from tests.training.engine.toys import engine
from tests.training.engine.toys import schedule
from wpriv.training.engine import distributed
distributed.join()
seen, real = [], torch._foreach_div_
def divided(parts, divisor):
    seen.extend(part.double().reshape(-1) for part in parts)
    return real(parts, divisor)
torch._foreach_div_ = divided
engine(Path({folder!r}), schedule(5), seed=4).run()
torch.save(torch.cat(seen), Path({folder!r}) / f"rank{{distributed.rank()}}.pt")
distributed.leave()
"""

LAYOUT = """
import sys; sys.path.insert(0, {root!r})
import torch
from pathlib import Path
from wpriv.training.engine import distributed
distributed.join()
part = (1 + distributed.rank()) * torch.arange(24.0).view(2, 3, 4)
if distributed.is_main():
    part = part.movedim(2, 1).contiguous().movedim(1, 2)
torch.save(distributed.all_reduce_sum([part])[0], Path({folder!r}) / f"rank{{distributed.rank()}}.pt")
distributed.leave()
"""

DRAWS = """
import sys; sys.path.insert(0, {root!r})
import torch
from pathlib import Path
from tests.training.engine.toys import engine
from tests.training.engine.toys import schedule
from wpriv.training.engine import distributed
from wpriv.errors import Interrupted
distributed.join()
folder = Path({folder!r})
def train(name, draws, stop=None, **how):
    own = engine(folder / name, schedule(6), seed=4, **how)
    aggregate = own.job.aggregate
    def drawing(indices):
        draws.append(torch.rand(3 + distributed.rank(), dtype=torch.float64))
        return aggregate(indices)
    own.job.aggregate = drawing
    own.run(stop=lambda: "a test" if own.steps_done == stop else None)
whole, resumed = [], []
train("whole", whole)
try:
    train("stopped", resumed, 2)
except Interrupted:
    torch.distributed.barrier()  # the main process writes the checkpoint
    train("stopped", resumed, resume=True)
torch.save(dict(whole=whole, resumed=resumed), folder / f"rank{{distributed.rank()}}.pt")
distributed.leave()
"""


def together(folder: Path, stop: int | None = None, **plan: object) -> None:
    """Runs the toy in two processes, all of its steps or those until a stop."""
    folder.mkdir()
    run_two(SCRIPT.format(root=str(ROOT), folder=str(folder), plan=plan, stop=stop))


def run_two(script: str) -> None:
    """Runs a script in two processes that talk over gloo."""
    for code, printed in forked.at_once(None, group_of_two(), Path.cwd(), before=script):
        assert code == 0, printed


def group_of_two() -> list[dict[str, str]]:
    """The environments of the two processes of a launch."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**shared, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
@pytest.mark.parametrize(
    "plan",
    [{}, {"multiplier": 0.0}, {"kind": "allocation"}, {"strategy": "lambda:0.9"}, {"strategy": "banded:3"}],
    ids=str,
)
def test_two_processes_end_with_the_weights_of_one(tmp_path, plan):
    # the same seeds draw the same records and the same noise: only the order of adding up differs
    single = engine(tmp_path / "one", schedule(15, **plan), seed=4)
    rows = single.run()
    together(tmp_path / "two", **plan)
    first, second = (torch.load(tmp_path / "two" / f"rank{r}.pt", weights_only=True) for r in range(2))
    assert torch.equal(first, second)
    assert torch.allclose(first, weights(single), atol=1e-5)
    assert len(ledger.entries(tmp_path / "two" / LEDGER)) == (0 if "multiplier" in plan else 15)
    assert [r["step"] for r in rows] == [3, 6, 9, 12, 15]
    assert (tmp_path / "two" / MODEL).is_file()
    assert torch.allclose(
        torch.cat([w.reshape(-1) for w in checkpoint.load(tmp_path / "two" / MODEL)["weights"].values()]), first
    )


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
@pytest.mark.parametrize("strategy", ["lambda:0.9", "banded:3"])
def test_one_process_goes_on_with_the_correlated_noise_of_two(tmp_path, strategy):
    single = engine(tmp_path / "one", schedule(15, strategy=strategy), seed=4)
    single.run()
    together(tmp_path / "two", stop=5, strategy=strategy)
    rest = engine(tmp_path / "two", schedule(15, strategy=strategy), seed=4, resume=True)
    rest.run()
    assert torch.allclose(weights(rest), weights(single), atol=1e-5)
    assert len(ledger.entries(tmp_path / "two" / LEDGER)) == 15


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_processes_with_exact_noise_end_with_the_bits_of_one(tmp_path):
    # exact sums have no order: the first process adds the noise of one to the sum of one
    single = engine(tmp_path / "one", schedule(15, exact=True), seed=4)
    single.run()
    together(tmp_path / "two", exact=True)
    for rank in range(2):
        assert torch.equal(torch.load(tmp_path / "two" / f"rank{rank}.pt", weights_only=True), weights(single))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_what_two_processes_release_lies_on_the_grid_of_the_noise(tmp_path):
    # oracle: the weights of a model that moves by its releases alone, in steps of the grid over the divisor
    folder = tmp_path / "two"
    folder.mkdir()
    script = GRID.format(root=str(ROOT), folder=str(folder))
    run_two(script)
    for rank in range(2):
        multiples = torch.load(folder / f"rank{rank}.pt", weights_only=True) / 2.0**-22
        assert torch.equal(multiples, multiples.round())


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_sums_are_of_equal_places_whatever_the_layout_in_memory(tmp_path):
    # as where one process has gradients of a kernel and the other one no record
    (tmp_path / "two").mkdir()
    run_two(LAYOUT.format(root=str(ROOT), folder=str(tmp_path / "two")))
    for rank in range(2):
        total = torch.load(tmp_path / "two" / f"rank{rank}.pt", weights_only=True)
        assert torch.equal(total, 3 * torch.arange(24.0).view(2, 3, 4))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_processes_draw_random_numbers_of_their_own_in_every_step_and_the_same_ones_again_when_resumed(tmp_path):
    # masks of dropout that two records share would change where a record before them is left out
    (tmp_path / "two").mkdir()
    run_two(DRAWS.format(root=str(ROOT), folder=str(tmp_path / "two")))
    first, second = (torch.load(tmp_path / "two" / f"rank{r}.pt", weights_only=True) for r in range(2))
    drawn = torch.cat([*first["whole"], *second["whole"]])
    assert len(drawn.unique()) == len(drawn)
    for draws in (first, second):
        assert torch.equal(torch.stack(draws["resumed"]), torch.stack(draws["whole"]))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_one_program_joins_a_group_for_each_of_several_trainings(tmp_path):
    # the store of torchrun outlives the groups, and each group must find its own addresses there
    (tmp_path / "several.py").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import os, time, torch\n"
        "from wpriv.training.engine import distributed\n"
        "for _ in range(4):\n"
        "    time.sleep(0.3 * (os.environ['RANK'] == '0'))  # the other one comes first, and finds what is there\n"
        "    assert distributed.join()\n"
        "    assert float(distributed.all_reduce_sum([torch.ones(())])[0]) == 2\n"
        "    distributed.leave()\n"
    )
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "several.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
