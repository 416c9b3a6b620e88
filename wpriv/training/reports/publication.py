"""The files of a results folder that may be published: a part of the privacy statement."""

from __future__ import annotations

from pathlib import Path

from wpriv.config.train_schema import Train
from wpriv.results import storage
from wpriv.results.model import Json
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


def of_training(train: Train, reports: Json | None, *, observed: bool = False, looks: bool = False) -> list[Entry]:
    """Return for each file of a training ``file``, whether to ``publish`` it (``yes`` or ``no``), and ``why``.

    Args:
        reports: the statement of its records, where they were privatised and the training itself adds no noise.
        observed: distances of gradients were observed, and figures were computed from them.
        looks: the training looked at private test records through noise, and has a ledger of that.
    """
    spec, averaged, adapted = tasks.load(train.task), train.average is not None, train.lora is not None
    broken = train.privacy is not None and train.privacy.clip == "batch-mean"
    answers = {
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
    publishable = dict(spec.publishable)
    if reports is not None:
        answer = ("no", CLEAR) if _depends_on_test_records(train) else ("yes", REPORTS)
        names = (storage.MODEL, storage.WEIGHTS, storage.AVERAGE, storage.ADAPTER[1])
        answers |= {name: answer for name in names if name in answers}
        answers[storage.METRICS] = ("no", FIGURE)
        publishable = {name: why for name, why in publishable.items() if name in spec.files}
    for name in storage.of_training(train.task, averaged=averaged, adapted=adapted):
        if name not in answers:
            source = next((file for file in publishable if Path(file).stem == Path(name).stem), None)
            answers[name] = ("no", TEST_RECORDS) if source is None else ("yes", publishable[source])
    answers |= {
        storage.CHECKPOINT: ("no", CHECKPOINT),
        "before-1, before-2, ...": ("no", EARLIER_RUNS),
        "the training records": ("no", RECORDS),
    }
    if train.privacy is None and reports is None:
        kept = (storage.STATEMENT, storage.STATEMENT_TEXT, storage.RECIPE)
        answers = {name: answer if name in kept else ("no", NOT_PRIVATE) for name, answer in answers.items()}
        del answers[storage.LEDGER]
        return _entries(answers)
    leaks = reports is not None and reports["guarantees"][0]["claim"] == "as-published"
    return _entries(answers, leaks=leaks, seed=train.seed if reports is None else reports["seed"])


def _depends_on_test_records(train: Train) -> bool:
    """Tell whether the weights depend on test records, which have no noise."""
    ended_by_them = train.early_stop is not None and train.early_stop.records is None
    return ended_by_them or tasks.load(train.task).trains_on_test_records(train)


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
    return _entries(answers, leaks=leaks, seed=seed)


def _entries(answers: dict[str, tuple[str, str]], *, leaks: bool = False, seed: int | None = None) -> list[Entry]:
    """Return the answers as entries; nothing may be published of records that leak, or with a fixed seed."""
    if leaks or seed is not None:
        reason = LEAKS if leaks else FIXED_SEED
        answers = {file: ("no", reason if answer == "yes" else why) for file, (answer, why) in answers.items()}
    return [{"file": file, "publish": answer, "why": why} for file, (answer, why) in answers.items()]
