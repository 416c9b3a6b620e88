"""Equal questions about one process are computed once, and others each by itself."""

from __future__ import annotations

import pytest

from wpriv import Gauss, Poisson, Process, Step
from wpriv.run.accounting import evaluate
from wpriv.run.training import shared_answers


@pytest.fixture
def questions(monkeypatch):
    """The deltas that were asked of an accountant."""
    deltas, ask = [], evaluate.ask
    monkeypatch.setattr(evaluate, "ask", lambda curve, *, delta: deltas.append(delta) or ask(curve, delta=delta))
    shared_answers._ask_once.cache_clear()
    yield deltas
    shared_answers._ask_once.cache_clear()


def process(n: int) -> Process:
    return Process((Step(Gauss(sigma=2), n, Poisson(0.01)),))


def test_equal_questions_are_computed_once_and_others_by_themselves(questions):
    first = shared_answers.guarantee(process(100), "pld", 1e-3, 1e-5)
    assert shared_answers.guarantee(process(100), "pld", 1e-3, 1e-5) == first
    assert questions == [1e-5]
    more = shared_answers.guarantee(process(101), "pld", 1e-3, 1e-5)
    other = shared_answers.guarantee(process(100), "pld", 1e-3, 1e-6)
    assert questions == [1e-5, 1e-5, 1e-6]
    assert more.epsilon.upper > first.epsilon.upper
    assert other.epsilon.upper > first.epsilon.upper


def test_a_process_without_a_hash_is_asked_each_time(questions, monkeypatch):
    def refuse(self):
        raise TypeError("unhashable")

    monkeypatch.setattr(Process, "__hash__", refuse)
    for _ in range(2):
        assert shared_answers.guarantee(process(100), "pld", 1e-3, 1e-5).epsilon.upper > 0
    assert questions == [1e-5, 1e-5]
