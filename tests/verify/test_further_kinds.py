"""Groups, replaced records, largest batches and random allocation: the verifier against sums over grids.

Where a job has several steps, the bracket of the accountant is the claim, and every number of it matters.
"""

from __future__ import annotations

import json
import os
import random
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("flint", reason="python-flint is not installed")

from wpriv import Gauss, Poisson, Process, Step, budget
from wpriv.core.sampling.kinds import Sampling
from wpriv.run.accounting import certificates
from wpriv.verify import certificate, prove

Z = np.arange(-12, 16, 0.002)
CELL = np.exp(-Z * Z / 2) / np.sqrt(2 * np.pi) * 0.002


def density(mean: float) -> np.ndarray:
    return np.exp(-((Z - mean) ** 2) / 2) / np.sqrt(2 * np.pi) * 0.002


def group_delta(eps: float) -> float:
    """Three records at rate 0.1, sigma 1: the mixture of N(j, 1) against N(0, 1), in the worse order."""
    person = sum(w * density(j) for j, w in enumerate([0.729, 0.243, 0.027, 0.001]))
    pairs = (person, density(0)), (density(0), person)
    return max(float(np.maximum(p - np.exp(eps) * q, 0).sum()) for p, q in pairs)


def replaced_delta(eps: float) -> float:
    """One record of norm 1/2 replaced at rate 0.3, sigma 1/2."""
    p, q = (0.7 * density(0) + 0.3 * density(mean) for mean in (1, -1))
    return float(np.maximum(p - np.exp(eps) * q, 0).sum())


def pass_delta(eps: float) -> float:
    """A pass of two steps, sigma 1, in the worse order."""
    z = np.arange(-9, 10, 0.004) + 0.002
    ratio, weight = np.exp(z - 0.5), np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * 0.004
    mean = (ratio[:, None] + ratio) / 2
    return max(float(weight @ np.maximum(gain, 0) @ weight) for gain in (mean - np.exp(eps), 1 - np.exp(eps) * mean))


def data(process: list[dict], adjacency: str, eps: float, lower: float, upper: float, **keys) -> dict:
    return {
        "schema": "wpriv.certificate/1",
        "notion": "approximate-dp",
        "asked": "delta",
        "adjacency": adjacency,
        "process": process,
        "epsilon_lower": eps,
        "epsilon_upper": eps,
        "delta_lower": lower,
        "delta_upper": upper,
        **keys,
    }


def answers(content: dict, thorough: bool = True) -> list[str]:
    return [proof.verdict for proof in prove.verify(certificate.read(json.dumps(content)), thorough)]


GAUSS = {"mech": "gauss", "sigma": 1.0, "sensitivity": 1.0, "n": 1}
KINDS = {
    "group": (group_delta, {**GAUSS, "sampling": "poisson", "rate": 0.1}, "add-remove", {"group": 3}),
    "replaced": (replaced_delta, {**GAUSS, "sensitivity": 2.0, "sampling": "poisson", "rate": 0.3}, "replace-one", {}),
    "allocation": (pass_delta, {**GAUSS, "n": 2, "sampling": "allocation", "rate": 0.5}, "add-remove", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_or_pass_is_bracketed_to_a_thousandth_of_a_sum_over_a_grid(kind, eps):
    oracle, step, adjacency, keys = KINDS[kind]
    truth = oracle(eps)
    low, high = truth * (1 - 1e-3), truth * (1 + 1e-3)
    assert answers(data([step], adjacency, eps, low, high, **keys), False) == ["proved", "proved"]
    assert answers(data([step], adjacency, eps, high, high, **keys))[1] == "refuted"
    assert answers(data([step], adjacency, eps, low, low, **keys))[0] == "refuted"


def certificate_of(process: Process, delta: float, width: float) -> dict:
    return certificates.of_guarantee(budget(process, delta=delta, tol=1e-4), width)


SMALL = {
    "group": Process((Step(Gauss(2.0), 20, Poisson(0.05)),), group=2),
    "replaced": Process((Step(Gauss(2.0), 20, Poisson(0.05)),), adjacency="replace-one"),
    "largest batch": Process((Step(Gauss(2.0), 20, Sampling("poisson", 0.05, 60)),), records=1000),
    "allocation": Process((Step(Gauss(2.0), 20, Sampling("allocation", 0.1)),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_every_number_of_a_further_kind_matters(kind):
    """On the unsafe side the upper end is refuted."""
    content = certificate_of(SMALL[kind], 1e-5, 0.01)
    assert answers(content, False) == ["proved", "proved"]
    step = content["process"][0]
    changes: list[dict] = [{"process": [{**step, "sigma": 1.8}]}, {"process": [{**step, "sensitivity": 1.1}]}]
    changes += [{"process": [{**step, "n": 30}]}, {"delta_lower": 5e-6, "delta_upper": 5e-6}]
    changes += [{"process": [{**step, "rate": 0.2 if kind == "allocation" else 0.06}]}]
    changes += [{"group": 3}] if kind == "group" else []
    for change in changes:
        assert answers({**content, **change})[0] == "refuted", change


def random_job(seed: int) -> tuple[Process, float]:
    """Poisson-sampled Gaussian noise of up to 100 kinds, in many steps, with deltas down to 1e-30."""
    draw = random.Random(seed)
    steps = tuple(
        Step(
            Gauss(round(draw.uniform(0.7, 8), 3)),
            int(10 ** draw.uniform(2.5, 5)),
            Poisson(round(10 ** draw.uniform(-3, -1), 6)),
        )
        for _ in range(draw.choice([1, 1, 1, 1, 1, 2, 3]))
    )
    return Process(steps), 10 ** draw.uniform(-30, -3)


JOBS = int(os.environ.get("WPRIV_VERIFIER_JOBS", "40"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(JOBS))
def test_brackets_of_random_jobs_are_proved(seed):
    """A thousandth outside of the printed ends; WPRIV_VERIFIER_JOBS=300 runs more of them."""
    process, delta = random_job(seed)
    row = budget(process, delta=delta, tol=1e-4)
    if row.epsilon.upper == float("inf"):
        pytest.skip("no finite eps")
    claim = certificate.read(json.dumps(certificates.of_guarantee(row, 1e-3)))
    assert [proof.verdict for proof in prove.verify(claim, thorough=False)] == ["proved", "proved"]
    assert Fraction(claim.ends["delta_upper"]) == Fraction(repr(delta))
