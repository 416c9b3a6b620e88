"""Trainings of single cells in the threads of one process."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

from wpriv.run.training import cell_task


def test_trainings_in_threads_of_one_process_take_turns(monkeypatch, tmp_path):
    # masks of dropout are drawn from generators that all threads share, and that a training seeds where it begins
    trained, alone = [], []
    inside, left = threading.Semaphore(0), threading.Event()

    def run(recipe: str, out: Path) -> None:
        trained.append((recipe, out.name))
        inside.release()
        if len(trained) == 1:
            left.wait()  # until the test has looked whether another one has begun
        alone.append(recipe)

    monkeypatch.setattr(cell_task.train, "run", run)
    cells = [SimpleNamespace(recipe=name, name=f"seed={name}") for name in "ab"]
    threads = [threading.Thread(target=cell_task.train_cell, args=(cell, tmp_path, {})) for cell in cells]
    for thread in threads:
        thread.start()
    assert inside.acquire()
    assert not inside.acquire(timeout=0.2)
    left.set()
    for thread in threads:
        thread.join()
    assert sorted(trained) == [("a", "seed=a"), ("b", "seed=b")]
    assert alone == [recipe for recipe, _ in trained]
