"""Train a tuned recipe in processes that are killed at chosen changes to files, and resume; run by the tests.

``python -m tests.training.tuning_kills FOLDER EVERY`` prints one JSON object: digests of the folders, and how often
the number of runs was drawn.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

from tests.training.engine import crashes
from wpriv.files import durable_writes
from wpriv.training import train, tuning

# every record is in each step, so that the account is quick
RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 120}
model: {name: mlp, width: 4, depth: 1, activation: tanh}
privacy: {sigma: 2, delta: 1e-5}
optimizer: {name: sgd, lr: 1.0}
batch: 120
steps: 3
seed: 4
tune:
  sweep: {over: optimizer.lr, values: [0.01, 1, 2]}
  repeats: "geometric:mean=2.5"
  score: {column: accuracy, records: public}
"""
CHANGES = ("replace", "rename", "remove", "move", "append")
KILLED = 9


def killing(at: int, log: Path) -> None:
    """Kill this process before its ``at``-th change to a file, and log every draw."""
    count = 0

    def wrapped(function):
        def change(*arguments, **options):
            nonlocal count
            count += 1
            if count == at:
                os._exit(KILLED)
            return function(*arguments, **options)

        return change

    for name in CHANGES:
        setattr(durable_writes, name, wrapped(getattr(durable_writes, name)))
    shutil.rmtree = wrapped(shutil.rmtree)
    drawn = tuning.write_draw

    def write(choices, folder):
        drawn(choices, folder)
        with log.open("a") as file:
            file.write(f"{len(choices.candidates)}\n")

    tuning.write_draw = write


def child(recipe: Path, out: Path, at: int, log: Path) -> int:
    """Train in a process of its own; return its exit status."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            killing(at, log)
            tuning.run(train.recipe_of(recipe), out, resume=True)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def digest(out: Path) -> dict[str, str]:
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(out.rglob("*"))
    }


def main(folder: Path, every: int) -> None:
    crashes.leave_out_what_takes_long()
    recipe = folder / "tuned.yaml"
    recipe.write_text(RECIPE)
    # in this process, so that the processes made of it need not load everything again
    tuning.run(train.recipe_of(recipe), folder / "whole")
    gc.freeze()
    results = {"whole": digest(folder / "whole"), "killed": [], "drawn": []}
    at = 1
    while True:
        out, log = folder / f"at-{at}", folder / f"log-{at}"
        status = child(recipe, out, at, log)
        if status == 0:
            break
        status = child(recipe, out, 0, log)
        results["killed"].append([at, status, digest(out) == results["whole"]])
        results["drawn"].append(len(log.read_text().splitlines()))
        at += every
    results["changes"] = at
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
