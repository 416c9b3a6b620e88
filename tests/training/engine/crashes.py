"""Kills a training before each of its file operations, or those of a shard, and goes on in every way that a user may.

The bits of every noisy sum are recorded outside the folder, so that the releases can be compared with the statement.
Run as a process of its own (``python -m tests.training.engine.crashes``), since it forks: each training is a child that
ends as if it were killed, without cleaning up.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests import nightly, waits
from wpriv.accounting import ledger
from wpriv.errors import Interrupted, WprivError
from wpriv.files import durable_writes
from wpriv.results import storage
from wpriv.training import finalize, plan, train
from wpriv.training.clipping import choose_method
from wpriv.training.engine import loop

KILLED, REFUSED, STOPPED, DONE = 9, 2, 75, 0
CHANGES = ("open", "write", "replace", "rename", "unlink", "truncate", "makedirs")
# every record is in each step, so that the account is quick
RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 40}
model: {name: mlp, width: 3, depth: 1, activation: tanh}
privacy: {sigma: 2, delta: 1e-5, method: ghost}
optimizer: {name: sgd, lr: LR}
batch: 40
steps: 3
checkpoint: 1e-9
accountants: [rdp]
"""
# random allocation in passes of 4 steps, of which a run that is stopped after step 2 has a part
PASSES = (
    RECIPE.replace("LR", "0.5")
    .replace("{sigma: 2", "{sampling: allocation, sigma: 2")
    .replace("batch: 40\nsteps: 3", "batch: 10\nsteps: 4")
)
CORRELATED = PASSES.replace("sampling: allocation", "noise: {strategy: banded:2}")
STEPS = 3
SHARDS = 24  # of the operations that a scenario is killed before


class KillingOs:
    """The os module, but kills the process before the k-th operation that changes a file, or within a write."""

    def __init__(self, k: int):
        self.left = k

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGES:
            return real

        def operation(*args: Any, **given: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **given)
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os._exit(KILLED)
            return real(*args, **given)

        return operation


class Trial:
    """A folder, the noisy sums that were drawn for it, and trainings in it."""

    def __init__(self, home: Path):
        self.out, self.log = home / "out", home / "drawn"
        self.log.touch()
        self.recipes = {lr: home / f"lr{lr}.yaml" for lr in ("0.5", "0.25")}
        for lr, path in self.recipes.items():
            path.write_text(RECIPE.replace("LR", lr))
        for name, text in (("passes", PASSES), ("correlated", CORRELATED)):
            self.recipes[name] = home / f"{name}.yaml"
            self.recipes[name].write_text(text)

    def train(self, lr: str = "0.5", *, kill: int = 0, stop: int = 0, **how: bool) -> tuple[int, int]:
        """One training in a child: how it ended, and how many operations were left until it would have been killed."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code, left = self._train(lr, kill or 10**6, stop, how)
                os.write(writer, str(left).encode())
            finally:
                os._exit(code)
        os.close(writer)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with os.fdopen(reader) as pipe:
            return code, int(pipe.read() or 0)

    def _train(self, lr: str, kill: int, stop: int, how: dict[str, bool]) -> tuple[int, int]:
        killer = KillingOs(kill)
        for module in (durable_writes, ledger, durable_writes):
            module.os = killer  # type: ignore[attr-defined]
        real, steps = loop.add_noise, [0]

        def noisy(total: Any, *args: Any, **given: Any) -> Any:
            parts = real(total, *args, **given)
            bits = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
            with self.log.open("a") as file:
                file.write(bits + "\n")
            steps[0] += 1
            return parts

        loop.add_noise = noisy
        try:
            recipe = train.recipe_of(self.recipes[lr])
            train.run(recipe, self.out, stop=lambda: "a test" if stop and steps[0] == stop else None, **how)
        except Interrupted:
            return STOPPED, killer.left
        except WprivError as error:
            sys.stderr.write(f"{error}\n")
            return REFUSED, killer.left
        return DONE, killer.left

    def drawn(self) -> int:
        return len(set(self.log.read_text().split()))

    def unstated(self) -> list[Path]:
        """Files of weights for others beside which there is no statement."""
        texts = (storage.STATEMENT, storage.STATEMENT_TEXT)
        return [
            path
            for path in self.out.rglob(storage.WEIGHTS)
            if not any((path.parent / name).is_file() for name in texts)
        ]

    def stated(self) -> int:
        """The releases that the statement counts or names as spent before it."""
        statement = json.loads((self.out / storage.STATEMENT).read_text())
        return statement["steps"] + sum(row["steps"] for row in statement["earlier_runs"])


def leave_out_what_takes_long() -> None:
    """Leaves out figures, the eps of each epoch, the comparison of clipping methods and what ``tests.waits`` names.

    Which steps are stated does not depend on these.
    """
    finalize.plot.draw = lambda *_, **__: []
    finalize.plot.task_files = lambda *_, **__: []
    plan.Plan.eps = lambda *_: 1.0  # type: ignore[method-assign]
    choose_method._try_methods = lambda probed, rows, larger, candidates, only_rules: choose_method.Choice(
        candidates[0]
    )
    waits.leave_out()


def finished(trial: Trial) -> None:
    assert trial.train()[0] == DONE


def stopped(trial: Trial) -> None:
    assert trial.train(stop=2)[0] == STOPPED


def stopped_in_a_pass(trial: Trial) -> None:
    assert trial.train("passes", stop=2)[0] == STOPPED


def stopped_with_correlated_noise(trial: Trial) -> None:
    assert trial.train("correlated", stop=2)[0] == STOPPED


# what was there before, what is killed, and what a user may do then: each is tried in turn until one succeeds
SCENARIOS: dict[str, tuple[Callable[[Trial], None], dict[str, Any], list[dict[str, Any]]]] = {
    "begin": (lambda trial: None, {}, [{}, {"resume": True}, {"fresh": True}]),
    "begin, then fresh": (lambda trial: None, {}, [{"fresh": True}, {}]),
    "resume": (stopped, {"resume": True}, [{}, {"resume": True}, {"fresh": True}]),
    "fork": (
        finished,
        {"lr": "0.25", "fork": True},
        [{"lr": "0.25"}, {"lr": "0.25", "resume": True}, {"lr": "0.25", "fork": True}],
    ),
    "fork, then fork": (finished, {"lr": "0.25", "fork": True}, [{"lr": "0.25", "fork": True}]),
    "fork of a stopped run": (
        stopped,
        {"lr": "0.25", "fork": True},
        [{"lr": "0.25", "resume": True}, {"lr": "0.25", "fork": True}],
    ),
    "resume within a pass": (
        stopped_in_a_pass,
        {"lr": "passes", "resume": True},
        [{"lr": "passes"}, {"lr": "passes", "resume": True}, {"lr": "passes", "fresh": True}],
    ),
    "resume with correlated noise": (
        stopped_with_correlated_noise,
        {"lr": "correlated", "resume": True},
        [{"lr": "correlated"}, {"lr": "correlated", "resume": True}, {"lr": "correlated", "fresh": True}],
    ),
    "fork of a run stopped in a pass": (
        stopped_in_a_pass,
        {"lr": "0.25", "fork": True},
        [{"lr": "0.25", "resume": True}, {"lr": "0.25", "fork": True}],
    ),
    "fork, then the first recipe": (finished, {"lr": "0.25", "fork": True}, [{"resume": True}, {"fresh": True}]),
    "fresh": (finished, {"fresh": True}, [{}, {"resume": True}, {"fresh": True}]),
    "fresh of a stopped run": (stopped, {"fresh": True}, [{"resume": True}, {"fresh": True}]),
}


@contextlib.contextmanager
def trial_in(home: Path, saved: Path | None = None) -> Iterator[Trial]:
    """A trial in an empty folder, or in a copy of a saved one; always at the same place, and removed afterwards."""
    path = home / "trial"
    if saved is None:
        path.mkdir()
    else:
        shutil.copytree(saved, path)
    yield Trial(path)
    shutil.rmtree(path)


def killed_everywhere(scenario: str, home: Path) -> dict[str, Any]:
    """Kill a scenario before the operations of this run; return the number of all and a line for each wrong outcome."""
    before, killed, ways = SCENARIOS[scenario]
    saved = home / scenario
    with trial_in(home) as trial:
        before(trial)
        shutil.copytree(home / "trial", saved)
        code, left = trial.train(**killed)
        operations, faults = 10**6 - left, [] if code == DONE else [f"not killed at all, it ends with {code}"]
    first = list(SCENARIOS).index(scenario)  # so that one run takes other operations in each scenario
    for k in (k for k in range(1, operations + 1) if nightly.is_in_shard(k + first, SHARDS)):
        with trial_in(home, saved) as trial:
            code, _ = trial.train(kill=k, **killed)
            faults += [f"operation {k}: {path} has no statement" for path in trial.unstated()]
            if code not in (KILLED, DONE):
                faults.append(f"operation {k}: the killed training ended with {code}")
            codes = []
            for way in ways:
                codes.append(trial.train(**way)[0])
                if codes[-1] == DONE:
                    break
            if codes[-1] != DONE or set(codes) - {DONE, REFUSED}:
                faults.append(f"operation {k}: going on ended with {codes}")
            elif trial.drawn() > trial.stated():
                faults.append(
                    f"operation {k}: {trial.drawn()} sums were drawn and {trial.stated()} are stated (after {codes})"
                )
    return {"scenario": scenario, "operations": operations, "faults": faults}


def warm_up(trial: Trial) -> None:
    """Loads and compiles here, in trainings of each kind, what every child would load and compile anew."""
    calls = iter([None, None, "a test"])
    for lr, how in (("0.5", {}), ("0.25", {"fork": True}), ("0.5", {"fresh": True})):
        train.run(train.recipe_of(trial.recipes[lr]), trial.out, stop=lambda: None, **how)
    with contextlib.suppress(Interrupted):
        train.run(train.recipe_of(trial.recipes["passes"]), trial.out, fresh=True, stop=lambda: next(calls))
    train.run(train.recipe_of(trial.recipes["passes"]), trial.out, resume=True, stop=lambda: None)
    gc.freeze()  # so that a child copies no page only to count what refers to it


if __name__ == "__main__":
    torch.set_num_threads(1)
    leave_out_what_takes_long()
    with tempfile.TemporaryDirectory() as home:
        with trial_in(Path(home)) as trial:
            warm_up(trial)
        for scenario in sys.argv[1:] or SCENARIOS:
            print(json.dumps(killed_everywhere(scenario, Path(home))), flush=True)
