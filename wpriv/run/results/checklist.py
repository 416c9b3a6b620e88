"""A checklist of the questions that a reader asks of a private model, answered from its privacy statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wpriv.numerics.safe_rounding import text
from wpriv.run.results import file_names, model_header
from wpriv.run.results.model_check import FITS, ModelCheck
from wpriv.run.results.statement_facts import CENTRAL, LOCAL, Facts, facts

NIST = "Evaluating the guarantee, by the topics of NIST SP 800-226 (2025)"
REPORTING = "Reporting the guarantee, by 'How to DP-fy ML' (Ponomareva et al. 2023)"
PUBLISHING = "Before the model is published"
INTRODUCTION = (
    "{answered} questions are answered from the privacy statement, {unanswered} are open: they say what a person must "
    "add. The questions are in wpriv's words, by the topics of the two documents; they replace neither."
)


@dataclass(frozen=True)
class Question:
    """One question.

    Args:
        group: the heading. answer: what the statement says, in sentences. add: what a person must
            add, empty if it is answered.
    """

    group: str
    question: str
    answer: tuple[str, ...] = ()
    add: str = ""

    def as_dict(self) -> dict[str, Any]:
        state = "open" if self.add else "answered"
        return {
            "group": self.group,
            "question": self.question,
            "state": state,
            "answer": list(self.answer),
            "add": self.add,
        }


def questions(statement: dict[str, Any], model: ModelCheck) -> list[Question]:
    """Return the questions with their answers.

    Args:
        statement: of a finished training. model: whether the weights in its folder are its own.
    Raises:
        Unsupported: the training had no privacy, or no proven guarantee.
    """
    source = facts(statement, "a checklist")
    return [*_evaluating(source), *_reporting(source), *_publishing(source, model)]


def to_markdown(statement: dict[str, Any], rows: list[Question]) -> str:
    """Render questions as Markdown with a box for each, ticked where it is answered."""
    unanswered = sum(bool(row.add) for row in rows)
    lines = [f"# Checklist: {statement['recipe']}", "", f"{model_header.promise(statement)}.", ""]
    lines += [INTRODUCTION.format(answered=len(rows) - unanswered, unanswered=unanswered), ""]
    for group in dict.fromkeys(row.group for row in rows):
        lines += [f"## {group}", ""]
        for row in (row for row in rows if row.group == group):
            lines += _item(row)
        lines.append("")
    return "\n".join(lines)


def _item(row: Question) -> list[str]:
    """A question as an item of a list; several sentences stand below it, one sentence beside it."""
    add = [f"**Add:** {row.add}."] if row.add else []
    head = f"- [{' ' if row.add else 'x'}] **{row.question}**"
    if len(row.answer) > 1:
        return [head, *(f"  - {line}" for line in [*row.answer, *add])]
    return [" ".join([head, *(f"{line.rstrip('.')}." for line in row.answer), *add])]


def _evaluating(source: Facts) -> list[Question]:
    def question(words: str, answer: Sequence[str] = (), add: str = "") -> Question:
        return Question(NIST, words, tuple(answer), add)

    persons = "whether a person can have several records; if so, train with `privacy: {group: m}`"
    subject = "this training"
    if source.model == LOCAL:
        persons, subject = "whether a person can have several records, of which each has this cost", "the reports"
    others = f"; {', '.join(source.earlier_runs)} are not included" if source.earlier_runs else ""
    return [
        question("How large are eps and delta?", _sentence(source.guarantee)),
        question("What is the unit of privacy?", _sentence(source.unit), persons if source.group == 1 else ""),
        question("Which data sets are neighbours?", _sentence(source.neighbours)),
        question("How is the contribution of one unit bounded?", _sentence(source.noise)),
        question("Whom must the people in the data trust?", source.source["trust_model"]),
        question(
            "Which budget is spent over all releases from these records?",
            _sentence(f"{subject}: {source.guarantee}{others}"),
            "every other release from these records, and a limit for all of them together",
        ),
        question(
            "Is the figure proven, and is the program that ran correct?",
            _sentence(_proof(source)),
            "a review of the code that ran, or an audit (`wpriv audit`)",
        ),
        question("Are floating point and random numbers safe?", source.not_assessed("floating point", "the generator")),
        question(
            "What do side channels reveal?",
            source.not_assessed("side channels"),
            "who can observe the machines during the training",
        ),
        question(
            "How useful is the model under this noise?",
            add=f"a measurement for publication; those in {file_names.METRICS} have no noise",
        ),
        question(
            "Are some groups of people served worse because of noise and clipping (bias)?",
            add="the accuracy for small groups, which lose most, beside that of a training without privacy",
        ),
        question(
            "How are the records collected, stored and deleted (data collection exposure, security)?",
            add="who holds the records, who has access, and for how long",
        ),
    ]


def _reporting(source: Facts) -> list[Question]:
    def question(words: str, answer: Sequence[str] = (), add: str = "") -> Question:
        return Question(REPORTING, words, tuple(answer), add)

    output, amplification = "the weights after every step, and so the final weights", source.sampling
    if source.model != CENTRAL:
        output, amplification = "the reports, and so everything that is computed from them", "none is used"
    versions = ", ".join(f"{key} {value}" for key, value in source.statement["versions"].items() if value is not None)
    return [
        question("Which setting: central, local or distributed?", _sentence(source.model.lower())),
        question("Which uses of the data are covered?", source.source["covered"]),
        question("Which uses of the data are not covered?", source.source["not_covered"]),
        question("What is protected: the final model, or all checkpoints?", _sentence(output)),
        question("Which unit and which neighbours?", _sentence(f"{source.unit}; {source.neighbours}")),
        question("Which accountant, and how are steps composed?", _sentence(source.composition)),
        question("Is amplification by sampling used, and does the sampling that ran fit it?", _sentence(amplification)),
        question("What did the choice of hyper-parameters cost?", *_tuning(source)),
        question(
            "Can others check it?",
            _sentence(f"`wpriv verify` checks ledger, statement and weights; made by {versions}"),
        ),
    ]


def _tuning(source: Facts) -> tuple[list[str], str]:
    """What the choice of settings cost, and what a person must add."""
    if source.model == LOCAL:
        return (
            ["Nothing, where it was made by trainings on the reports: they are post-processing."],
            "how radius, mechanism, transform and budget of the reports were chosen, and what else was chosen by "
            "looking at the records themselves, which has a cost",
        )
    how = "on public data, by private tuning, or by earlier trainings on these records, of which each has a cost"
    tuning = source.source.get("tuning")
    if tuning is None:
        return (
            ["No figure here includes it."],
            f"how model, learning rate, clipping norm, batch and epochs were chosen: {how}",
        )
    keys = ", ".join(tuning["candidates"][0]) if tuning["candidates"] else "none"
    repeats = tuning["repeats"]
    numbers = ", ".join(f"{name} {value:g}" for name, value in repeats.items() if name != "kind")
    return (
        [
            f"The guarantee is that of the best of K runs (K {repeats['kind']}, {numbers}), each of one of "
            f"{len(tuning['candidates'])} candidates, so that the choice of {keys} is paid for."
        ],
        f"how the candidates and all other settings were chosen: {how}",
    )


def _publishing(source: Facts, model: ModelCheck) -> list[Question]:
    def question(words: str, answer: Sequence[str] = (), add: str = "") -> Question:
        return Question(PUBLISHING, words, tuple(answer), add)

    delta, runs, files = source.delta, source.earlier_runs, source.publishable
    secret = source.source["seed"] is None
    unseeded = "reports of `wpriv privatize` without a seed" if source.model == LOCAL else "a training without a seed"
    fits = model.verdict == FITS
    warnings = source.statement.get("warnings", [])
    return [
        question(
            "Which files may be published?",
            _sentence(", ".join(files) or "none"),
            "" if files else f"what stands against it, see 'Files' in {file_names.STATEMENT_TEXT}",
        ),
        question(
            "Is delta below 1 / records?",
            _sentence(f"{text(delta['value'], up=True)} = {delta['meaning']}"),
            "" if delta["times_records"] < 1 else "a training with a delta far below 1 / records",
        ),
        question(
            "Which earlier runs used these records?",
            [
                f"In this folder: {', '.join(runs)}. The figures do not include them."
                if runs
                else "None in this folder."
            ],
            "trainings in other folders on these records",
        ),
        question(
            "Is the seed of the noise unknown to everyone?",
            ["It came from the operating system, and is not recorded."] if secret else [],
            "" if secret else f"{unseeded}: whoever knows a fixed seed can subtract the noise",
        ),
        question(
            "Are the weights those of the statement?",
            _sentence(model.words),
            "" if fits else f"{file_names.WEIGHTS}, by training again with this version",
        ),
        question(
            "Are there warnings?",
            warnings or ["There are none."],
            "why each of them is acceptable" if warnings else "",
        ),
    ]


def _proof(source: Facts) -> str:
    claim = source.row["claim"]
    meaning = {"certified": "a proven bracket", "exact": "a closed form", "upper-bound": "a proven upper bound"}[claim]
    return f"the figure is {meaning} by {source.row['accountant']} ({source.row['source']})"


def _sentence(words: str) -> tuple[str]:
    return (f"{words}.",)
