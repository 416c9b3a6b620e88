"""A checklist of the questions that a reader asks of a private model, answered from its privacy statement.

The questions and their answers are in ``templates/checklist.txt.j2``.
"""

from __future__ import annotations

from dataclasses import dataclass

from wpriv.run.results import render, words
from wpriv.run.results.model import Statement
from wpriv.run.results.model_check import ModelCheck


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

    def as_dict(self) -> dict[str, object]:
        state = "open" if self.add else "answered"
        answer = list(self.answer)
        return {"group": self.group, "question": self.question, "state": state, "answer": answer, "add": self.add}


def questions(statement: Statement, model: ModelCheck) -> list[Question]:
    """Return the questions with their answers.

    Args:
        statement: of a finished training. model: whether the weights in its folder are its own.
    Raises:
        Unsupported: the training had no privacy, or no proven guarantee.
    """
    source, row = words.guaranteed(statement, "a checklist")
    lines = render.lines(
        "checklist.txt.j2",
        statement=statement,
        source=source,
        row=row,
        guarantee=words.guarantee(row),
        setting=words.model_of(source),
        runs=words.earlier_runs(statement),
        model=model,
    )
    group, rows = "", []
    for line in lines:
        kind, text = line[0], line[2:]
        if kind == "=":
            group = text
        elif kind == "?":
            rows.append(Question(group, text))
        else:
            last = rows[-1]
            answer, add = ((*last.answer, text), last.add) if kind == "-" else (last.answer, text)
            rows[-1] = Question(group, last.question, answer, add)
    return rows


def to_markdown(statement: Statement, rows: list[Question]) -> str:
    """Render questions as Markdown with a box for each, ticked where it is answered."""
    return render.filled("checklist.md.j2", statement=statement, rows=rows, answered=sum(not row.add for row in rows))
