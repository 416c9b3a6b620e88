"""The files of a training and of privatised records, with what its privacy statement says about publishing them."""

from __future__ import annotations

from wpriv.config.train_schema import Optimizer, Privacy, Train
from wpriv.training.reports import publication


def training() -> str:
    """Return a table of the files of a private training whose seed is not fixed."""
    private, optimizer = Privacy(sigma=1.0, delta=1e-5), Optimizer(name="sgd", lr=0.1)
    job = {"task": "classify", "data": {"name": "digits"}, "model": {"name": "mlp"}, "batch": 60, "epochs": 1}
    train = Train(kind="train", source="an example", **job, privacy=private, optimizer=optimizer)
    return _table(publication.of_training(train, None))


def reports() -> str:
    """Return a table of the files of ``privatize``."""
    return _table(publication.of_reports(labels=False, seed=None))


def _table(entries: list[publication.Entry]) -> str:
    rows = [f"| {_name(entry['file'])} | {entry['publish']} | {entry['why']} |" for entry in entries]
    return "\n".join(["| file | publish | why |", "|---|---|---|", *rows]) + "\n"


def _name(file: str) -> str:
    return file if " " in file else f"`{file}`"


PARTS = {"files-training": training, "files-privatize": reports}
