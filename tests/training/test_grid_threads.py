"""Trainings of single cells in the threads of one process."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

from wpriv.training import training_grid


def test_trainings_in_threads_of_one_process_take_turns(monkeypatch, tmp_path):
    # masks of dropout are drawn from generators that all threads share, and that a training seeds where it begins
    trained, alone = [], []
    inside, left = threading.Semaphore(0), threading.Event()

    def train(recipe: str, out: Path, **options: object) -> None:
        trained.append((recipe, out.name))
        inside.release()
        if len(trained) == 1:
            left.wait()  # until the test has looked whether another one has begun
        alone.append(recipe)

    monkeypatch.setattr(training_grid.training_run, "train", train)
    cells = [SimpleNamespace(recipe=name, name=f"seed={name}") for name in "ab"]
    threads = [threading.Thread(target=training_grid.Grid(cells, tmp_path).train, args=(cell,)) for cell in cells]
    for thread in threads:
        thread.start()
    assert inside.acquire()
    assert not inside.acquire(timeout=0.2)
    left.set()
    for thread in threads:
        thread.join()
    assert sorted(trained) == [("a", "seed=a"), ("b", "seed=b")]
    assert alone == [recipe for recipe, _ in trained]
