"""The files of a results folder that may be published: a part of the privacy statement."""

from __future__ import annotations

from pathlib import Path

from wpriv.results import storage
from wpriv.training import tasks

# how the noise is drawn, for statements
GENERATOR = (
    "made of AES-256 in counter mode under a key of 256 bits, from the operating system unless a seed is fixed, and is "
    "secure against everyone who cannot break that"
)
SETTINGS = "settings only, none of them computed from a record"
MODEL = "the trained weights, computed from noisy releases only, with settings and the position in the ledger"
WEIGHTS = "the trained weights alone, computed from noisy releases only; its header repeats this statement in short"
AVERAGE = (
    "the average of the weights after each step, computed from them alone; its header repeats this statement in short"
)
ADAPTER = "where there is one: the weights that were trained, for peft, computed from noisy releases only"
DIAGNOSTICS = (
    "it holds the metrics, distances of gradients where they were observed, and a fingerprint of the training records: "
    "all computed without noise"
)
BROKEN = "no useful guarantee is proven for the published procedure, and running statistics have no noise"
LEDGER = "the parameters of every release and a digest of the noise key; nothing in it was computed from a record"
STATEMENT = (
    "it states the guarantees; it was computed from settings, the ledger and the accountants, and from counts that are "
    "treated as public"
)
METRICS = (
    "loss and clipped share are computed from training records without noise; the other columns from test records, or "
    "from what 'Not covered' names"
)
FIGURE = "it shows what was measured, without noise, on test records or on what 'Not covered' names"
EXPECT = "where there is one, it repeats metrics, which were measured without noise"
PROVENANCE = "its fingerprint of the training records lets anyone test a guess of the whole set"
CHECKPOINT = "it holds the key of future noise and the state of the sampler; it is deleted when the run ends"
EARLIER_RUNS = (
    "the rules of this table hold for each earlier run in it, and a publication from one costs privacy beside this run"
)
RECORDS = "they are the protected records"
TEST_RECORDS = "it shows test records, or was computed from them without noise"
FIXED_SEED = "the seed is fixed: whoever knows it can draw the noise and subtract it. Publish no file"
LEAKS = "the records were clamped to their own quantiles, which no noise covers: there is no guarantee"
NOT_PRIVATE = "the training had no privacy: it was computed from the records without noise"
REPORTS = "computed from reports only: post-processing"
CLEAR = "it depends on a choice that was made by looking at clear test records"
OBSERVED = (
    "it holds bdp or wdp numbers, or a digest of the statement that does: they were computed from distances of "
    "gradients of training records, without noise"
)

Entry = dict[str, str]


def of_training(
    task: str,
    *,
    private: bool,
    reports: bool,
    seed: int | None,
    broken: bool = False,
    averaged: bool = False,
    adapted: bool = False,
    on_test_records: bool = False,
    observed: bool = False,
    leaks: bool = False,
    looks: bool = False,
) -> list[Entry]:
    """Return which files of a training may be published.

    Args:
        task: the task. private: the training added the noise. reports: its records were privatised before.
        seed: the fixed seed of the training or of the reports; None where there is none.
        broken: the training ran the published procedure that clips the mean gradient of a batch.
        averaged: the training also wrote averaged weights. adapted: it wrote an adapter.
        on_test_records: the weights depend on test records.
        observed: distances of gradients were observed, and figures were computed from them.
        leaks: the reports have no guarantee, since clip bounds were computed from the records.
        looks: the training looked at private test records through noise, and has a ledger of that.
    Returns:
        For each file ``file``, ``publish`` (``yes`` or ``no``) and ``why``.
    """
    answers = _common_files(broken)
    if looks:
        answers[storage.LOOKS] = ("yes", LEDGER)
    if averaged:
        answers[storage.AVERAGE] = ("no", BROKEN) if broken else ("yes", AVERAGE)
    if adapted:
        answers[storage.ADAPTER[0]] = ("yes", SETTINGS)
        answers[storage.ADAPTER[1]] = ("no", BROKEN) if broken else ("yes", ADAPTER)
    if observed:
        names = (storage.STATEMENT, storage.STATEMENT_TEXT, storage.WEIGHTS, storage.AVERAGE)
        answers |= {name: ("no", OBSERVED) for name in names if name in answers}
    spec = tasks.load(task)
    publishable = dict(spec.publishable)
    if reports:
        answer = ("no", CLEAR) if on_test_records else ("yes", REPORTS)
        answers |= dict.fromkeys((storage.MODEL, storage.WEIGHTS), answer)
        answers |= {storage.AVERAGE: answer} if averaged else {}
        answers |= {storage.ADAPTER[1]: answer} if adapted else {}
        answers |= {storage.METRICS: ("no", FIGURE)}
        publishable = {name: why for name, why in publishable.items() if name in spec.files}
    for name in storage.of_training(task, averaged=averaged, adapted=adapted):
        if name not in answers:
            source = next((file for file in publishable if Path(file).stem == Path(name).stem), None)
            answers[name] = ("no", TEST_RECORDS) if source is None else ("yes", publishable[source])
    answers |= {
        storage.CHECKPOINT: ("no", CHECKPOINT),
        "before-1, before-2, ...": ("no", EARLIER_RUNS),
        "the training records": ("no", RECORDS),
    }
    if not private and not reports:
        kept = (storage.STATEMENT, storage.STATEMENT_TEXT, storage.RECIPE)
        answers = {
            name: answer if name in kept else ("no", NOT_PRIVATE)
            for name, answer in answers.items()
            if name != storage.LEDGER
        }
    elif leaks or seed is not None:
        answers = _nothing_publishable(answers, LEAKS if leaks else FIXED_SEED)
    return _entries(answers)


def of_reports(*, labels: bool, seed: int | None, leaks: bool = False) -> list[Entry]:
    """Return which files of ``privatize`` may be published, as ``of_training``.

    Args:
        labels: the file of reports holds them unchanged. seed: the fixed one, or None. leaks: clip bounds were
            computed from the records.
    """
    unchanged = ", the labels unchanged, which --public-labels declares public," if labels else ""
    answers = {
        "the .npz": ("yes", f"it holds the reports{unchanged} and this statement"),
        "the .statement.json and .statement.md": ("yes", f"{SETTINGS}, and the number of records"),
        "the records": ("no", RECORDS),
    }
    if leaks or seed is not None:
        answers = _nothing_publishable(answers, LEAKS if leaks else FIXED_SEED)
    return _entries(answers)


def _common_files(broken: bool) -> dict[str, tuple[str, str]]:
    """The files of every task."""
    return {
        storage.STATEMENT: ("yes", STATEMENT),
        storage.STATEMENT_TEXT: ("yes", STATEMENT),
        storage.MODEL: ("no", BROKEN) if broken else ("yes", MODEL),
        storage.WEIGHTS: ("no", BROKEN) if broken else ("yes", WEIGHTS),
        storage.DIAGNOSTICS: ("no", DIAGNOSTICS),
        storage.LEDGER: ("yes", LEDGER),
        storage.RECIPE: ("yes", SETTINGS),
        storage.METRICS: ("no", METRICS),
        storage.FIGURE: ("no", FIGURE),
        storage.PROVENANCE: ("no", PROVENANCE),
        storage.EXPECT: ("no", EXPECT),
    }


def _nothing_publishable(answers: dict[str, tuple[str, str]], reason: str) -> dict[str, tuple[str, str]]:
    """The answers where nothing may be published for one reason."""
    return {file: ("no", reason if answer == "yes" else why) for file, (answer, why) in answers.items()}


def _entries(answers: dict[str, tuple[str, str]]) -> list[Entry]:
    return [{"file": file, "publish": answer, "why": why} for file, (answer, why) in answers.items()]
