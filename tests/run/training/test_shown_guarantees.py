"""What the result of a training, its statement and its reports show of a guarantee: never more than was proven."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.mechanisms.gauss import Gauss
from wpriv.run.accounting import evaluate
from wpriv.run.results import model_header, statement_facts, summary
from wpriv.run.training import training_statement
from wpriv.run.training.trained import Trained

# 1 / 300,000: six digits to the nearest lie below it
THIRD = 1 / 300_000
PROCESS = Process((Step(Gauss(sigma=4.0), 1),))


def figure(accountant, delta=1e-5):
    return evaluate.ask(evaluate.curve(PROCESS, accountant), delta=delta)


def result(*accountants):
    plan = SimpleNamespace(recipe=SimpleNamespace(name="r"), steps=1)
    return Trained(plan, [], [figure(name) for name in accountants], [], [], {}, "out")


@pytest.mark.parametrize(("delta", "shown"), [(THIRD, "3.33334e-06"), (1e-5, "1e-05")])
def test_delta_is_never_shown_smaller_than_it_is(delta, shown):
    row = figure("pld", delta).as_dict()
    statement = {"private": True, "guarantees": [row], "unit": "one record"}
    sentences = [
        model_header.promise(statement),
        statement_facts.Facts(statement, statement, row, statement_facts.CENTRAL).guarantee,
        summary.guarantee_of_all(row),
        training_statement._figure(row),
    ]
    assert [f"at delta = {shown}" in sentence for sentence in sentences] == [True] * 4


@pytest.mark.parametrize("other", ["wdp:variant=exact", "gdp-clt"])
def test_a_figure_that_proves_no_eps_and_delta_is_not_the_guarantee_of_a_training(other):
    trained = result(other, "pld")
    assert trained.guarantee.accountant == "pld"
    assert "eps = " in repr(trained)
    assert "no guarantee" in repr(result(other))
    with pytest.raises(Unsupported, match="no guarantee is known"):
        _ = result(other).guarantee
