"""Equal questions about one process are computed once, and others each by itself."""

from __future__ import annotations

import pytest

from wpriv import Gauss, Poisson, Process, Step
from wpriv.accounting import evaluate
from wpriv.accounting.target import solve_for
from wpriv.training import plan


@pytest.fixture
def questions(monkeypatch):
    """The deltas that were asked of an accountant."""
    deltas, ask = [], evaluate.ask
    monkeypatch.setattr(evaluate, "ask", lambda curve, *, delta: deltas.append(delta) or ask(curve, delta=delta))
    plan._kept_guarantee.cache_clear()
    yield deltas
    plan._kept_guarantee.cache_clear()


def process(n: int) -> Process:
    return Process((Step(Gauss(sigma=2), n, Poisson(0.01)),))


def test_equal_questions_are_computed_once_and_others_by_themselves(questions):
    first = plan.guarantee(process(100), "pld", 1e-3, 1e-5)
    assert plan.guarantee(process(100), "pld", 1e-3, 1e-5) == first
    assert questions == [1e-5]
    more = plan.guarantee(process(101), "pld", 1e-3, 1e-5)
    other = plan.guarantee(process(100), "pld", 1e-3, 1e-6)
    assert questions == [1e-5, 1e-5, 1e-6]
    assert more.epsilon.upper > first.epsilon.upper
    assert other.epsilon.upper > first.epsilon.upper


def test_a_process_without_a_hash_is_asked_each_time(questions, monkeypatch):
    def refuse(self):
        raise TypeError("unhashable")

    monkeypatch.setattr(Process, "__hash__", refuse)
    for _ in range(2):
        assert plan.guarantee(process(100), "pld", 1e-3, 1e-5).epsilon.upper > 0
    assert questions == [1e-5, 1e-5]


def test_the_noise_of_an_equal_question_is_solved_for_once(monkeypatch):
    solved = []

    def counted(*question):
        solved.append(question[3:])
        return solve_for(*question)

    monkeypatch.setattr(plan, "_noises", {})
    monkeypatch.setattr(plan, "solve_for", counted)

    def noisy(steps):
        return lambda sigma: Process((Step(Gauss(sigma), steps),))

    first = plan.least_noise(noisy(10), "pld", 1.0, 1e-5, 1e-6)
    assert plan.least_noise(noisy(10), "pld", 1.0, 1e-5, 1e-6) is first
    assert len(solved) == 1
    # oracle: ten Gaussian releases are one with sqrt(10) times the sensitivity (Dong, Roth, Su 2022)
    once = plan.least_noise(noisy(1), "pld", 1.0, 1e-5, 1e-6)
    assert first.value == pytest.approx(once.value * 10**0.5, rel=1e-5)
    other = plan.least_noise(noisy(10), "pld", 2.0, 1e-5, 1e-6)
    assert other.value < first.value
    assert len(solved) == 3


def test_a_kept_noise_is_not_taken_for_another_process_that_agrees_where_it_was_sampled(monkeypatch):
    monkeypatch.setattr(plan, "_noises", {})

    def plain(sigma):
        return Process((Step(Gauss(sigma), 4),))

    def odd(sigma):
        return Process((Step(Gauss(sigma), 4 if sigma in (1.0, 2.0) else 9),))

    first = plan.least_noise(plain, "pld", 1.0, 1e-5, 1e-6)
    assert plan.least_noise(odd, "pld", 1.0, 1e-5, 1e-6).value == pytest.approx(first.value * 1.5, rel=1e-5)
