"""Who sees what in a training and under local reports, and which files of a results folder may be published: parts of the statement."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.run.results import file_names

CENTRAL = [
    "the curator, who runs the training, is trusted: it sees the records, their gradients, the sums before noise and every random number. "
    "So do the machines that it runs on, and all processes of one training",
    "whoever sees the output is not trusted: the figures hold against anybody who sees the weights after every step (and so the last ones) "
    "and this statement, and who knows all records but one",
    "nobody but the curator may see what is marked below as not for publication; no figure holds against those who do",
]
LOCAL = [
    "whoever adds the noise sees the records: here that is the one process that ran, which is trusted as each record's owner would be who "
    "runs it on that record alone",
    "whoever receives the reports is not trusted: the figures hold against anybody who sees all of them and knows all other records",
]
NOTHING = ["nobody who sees any of these files is kept from learning about a record: no noise was added"]

GENERATOR = (
    "made of AES-256 in counter mode under a key of 256 bits, from the operating system where no seed is fixed, and hides from those who "
    "cannot break that"
)
SETTINGS = "settings alone, none of them computed from a record"
MODEL = "the trained weights, made of noisy releases alone, and beside them settings and the position in the ledger"
DIAGNOSTICS = (
    "it holds the metrics, distances of gradients where they were observed, and a fingerprint that depends on the training records: all "
    "computed without noise"
)
BROKEN = "the noise of the published procedure protects nobody by any proven figure worth having, and running statistics have none"
LEDGER = (
    "the parameters of every release and a digest of the key of the noise; nothing in it was computed from a record"
)
STATED = "it says what is promised; it is made of settings, the ledger and the accountants, and of counts that are taken as public"
METRICS = (
    "loss and clipped share are computed from training records without noise; the other columns on test records, or on what 'Not covered' "
    "names"
)
FIGURE = "it shows what was measured, without noise, on test records or on what 'Not covered' names"
FINGERPRINT = "its fingerprint of the training records lets anybody test a guess of the whole set"
CHECKPOINT = "it holds the key of the noise to come and the state of the sampler; it is deleted when the run ends"
EARLIER = (
    "the rules of this table hold for each earlier run in it, and what is published of one is spent beside this run"
)
RECORDS = "they are what is protected"
UNKNOWN = "it shows test records, or was computed from them without noise"
SEED = (
    "the seed is fixed: with it, whoever sees the output can draw the noise and subtract it. Nothing is for publication"
)
OPEN = "the training had no privacy: it was computed from the records without noise"
REPORTS = "computed from reports alone: post-processing"

Entry = dict[str, str]


def of_training(task: str, *, private: bool, reports: bool, seed: int | None, broken: bool = False) -> list[Entry]:
    """What may be published of the folder of one training.

    Args:
        task: whose files it holds. private: the training added the noise. reports: its records were privatised before.
        seed: the fixed seed of the training or of the reports; None where there is none.
        broken: the training ran the published procedure that clips the mean gradient of a batch.
    Returns:
        For each file ``file``, ``publish`` (``yes`` or ``no``) and ``why``.
    """
    spec = tasks.load(task)
    made = dict(spec.publishable)
    answers: dict[str, tuple[str, str]] = {
        file_names.STATEMENT: ("yes", STATED),
        file_names.STATEMENT_TEXT: ("yes", STATED),
        file_names.MODEL: ("no", BROKEN) if broken else ("yes", MODEL),
        file_names.DIAGNOSTICS: ("no", DIAGNOSTICS),
        file_names.LEDGER: ("yes", LEDGER),
        file_names.RECIPE: ("yes", SETTINGS),
        file_names.METRICS: ("no", METRICS),
        file_names.FIGURE: ("no", FIGURE),
        file_names.PROVENANCE: ("no", FINGERPRINT),
    }
    if reports:
        answers |= {file_names.MODEL: ("yes", REPORTS), file_names.METRICS: ("no", FIGURE)}
        made = {name: why for name, why in made.items() if name in spec.files}
    for name in file_names.of_training(task):
        if name not in answers:
            source = next((file for file in made if Path(file).stem == Path(name).stem), None)
            answers[name] = ("no", UNKNOWN) if source is None else ("yes", made[source])
    answers |= {
        file_names.CHECKPOINT: ("no", CHECKPOINT),
        "before-1, before-2, ...": ("no", EARLIER),
        "the training records": ("no", RECORDS),
    }
    if not private and not reports:
        kept = (file_names.STATEMENT, file_names.STATEMENT_TEXT, file_names.RECIPE)
        answers = {
            name: answer if name in kept else ("no", OPEN)
            for name, answer in answers.items()
            if name != file_names.LEDGER
        }
    elif seed is not None:
        answers = {name: ("no", SEED if answer == "yes" else why) for name, (answer, why) in answers.items()}
    return _entries(answers)


def of_reports(*, labels: bool, seed: int | None) -> list[Entry]:
    """What may be published of what ``privatize`` writes, as ``of_training``.

    Args:
        labels: they are in the file of reports as they are. seed: the fixed one, or None.
    """
    clear = " and the labels as they are, which --public-labels says are public" if labels else ""
    answers = {
        "the .npz": ("yes", f"it holds the reports{clear}, and this statement"),
        "the .statement.json and .statement.md": ("yes", f"{SETTINGS}, and the number of records"),
        "the records": ("no", RECORDS),
    }
    if seed is not None:
        answers = {file: ("no", why if answer == "no" else SEED) for file, (answer, why) in answers.items()}
    return _entries(answers)


def _entries(answers: dict[str, tuple[str, str]]) -> list[Entry]:
    return [{"file": file, "publish": answer, "why": why} for file, (answer, why) in answers.items()]


def share(delta: float, records: int) -> dict[str, Any]:
    """delta beside 1 / records, which it should lie far below.

    Returns:
        ``value``, ``records``, ``times_records`` (delta over 1 / records) and ``meaning`` in words.
    """
    times = delta * records
    if delta == 0:
        meaning = "pure DP: nothing is left to chance"
    elif times >= 1:
        meaning = (
            f"{times:.3g} / records, NOT below 1 / records: a mechanism may publish some record outright and keep it"
        )
    else:
        meaning = f"{times:.3g} / records: below 1 / records, at which a mechanism may publish some record outright"
    return {"value": delta, "records": records, "times_records": times, "meaning": meaning}


def lines(title: str, words: Iterable[str]) -> list[str]:
    """A section of Markdown with a bullet a line."""
    return [f"## {title}", "", *(f"- {word}" for word in words), ""]


def table(entries: list[Entry]) -> list[str]:
    """The section of Markdown that says which files may be published."""
    rows = [f"| {entry['file']} | {entry['publish']} | {entry['why']} |" for entry in entries]
    return ["## Files", "", "| file | publish | why |", "|---|---|---|", *rows, ""]
