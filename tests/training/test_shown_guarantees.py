"""What the result of a training, its statement and its reports show of a guarantee: never more than was proven."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.results.model import Figure, Together
from wpriv.training.reports import words
from wpriv.training.trained import Trained

# 1 / 300,000: six digits to the nearest lie below it
THIRD = 1 / 300_000
PROCESS = Process((Step(Gauss(sigma=4.0), 1),))


def figure(accountant, delta=1e-5):
    return evaluate.ask(evaluate.curve(PROCESS, accountant), delta=delta)


def result(*accountants):
    plan = SimpleNamespace(recipe=SimpleNamespace(name="r"), steps=1)
    return Trained(plan, [], [figure(name) for name in accountants], [], [], {}, "out")


@pytest.mark.parametrize(("delta", "shown"), [(THIRD, "3.33334e-6"), (1e-5, "1e-5")])
def test_delta_is_never_shown_smaller_than_it_is(delta, shown):
    entries = figure("pld", delta).as_dict()
    row = Figure(**entries)
    together = Together(**{key: entries[key] for key in ("epsilon", "delta", "claim", "accountant")})
    sentences = [words.point(row), words.guarantee(row), words.guarantee_of_all(together), words.figure(row)]
    assert [f"at delta = {shown}" in sentence for sentence in sentences] == [True] * 4


@pytest.mark.parametrize("other", ["wdp:variant=exact", "gdp-clt"])
def test_a_figure_that_proves_no_eps_and_delta_is_not_the_guarantee_of_a_training(other):
    trained = result(other, "pld")
    assert trained.guarantee.accountant == "pld"
    assert "eps = " in repr(trained)
    assert "no guarantee" in repr(result(other))
    with pytest.raises(Unsupported, match="no guarantee is known"):
        _ = result(other).guarantee
