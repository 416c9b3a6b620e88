"""The files of a training and of privatised records, with what its privacy statement says about publishing them."""

from __future__ import annotations

from wpriv.training.reports import publication


def training() -> str:
    """Return a table of the files of a private training whose seed is not fixed."""
    return _table(publication.of_training("classify", private=True, reports=False, seed=None))


def reports() -> str:
    """Return a table of the files of ``privatize``."""
    return _table(publication.of_reports(labels=False, seed=None))


def _table(entries: list[publication.Entry]) -> str:
    rows = [f"| {_name(entry['file'])} | {entry['publish']} | {entry['why']} |" for entry in entries]
    return "\n".join(["| file | publish | why |", "|---|---|---|", *rows]) + "\n"


def _name(file: str) -> str:
    return file if " " in file else f"`{file}`"


PARTS = {"files-training": training, "files-privatize": reports}
