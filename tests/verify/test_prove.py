"""The verifier proves what is true and refutes what is false.

Oracles: closed forms and quadrature in mpmath, and the answers of the benchmark (``benchmarks.job_truths``: an inverse
Laplace transform in high precision). Claims of the accountant are then put to the
verifier, which shares no code with it.
"""

from __future__ import annotations

import json
from fractions import Fraction

import mpmath
import pytest
from flint import acb, arb

from benchmarks import verifier
from benchmarks.jobs import JOBS
from tests import nightly
from wpriv import Process, budget
from wpriv.accounting import certificates
from wpriv.verify import certificate, pairs, prove, transform_inversion
from wpriv.verify.certificate import Claim, Step

EXACT = Fraction(1)


def step(mech: str, n: int = 1, sampling: str = "none", rate: str = "1", **parameters: str) -> Step:
    return Step(mech, tuple((k, Fraction(v)) for k, v in parameters.items()), n, sampling, Fraction(rate))


def gauss(sigma: str, n: int = 1, sampling: str = "none", rate: str = "1") -> Step:
    return step("gauss", n, sampling, rate, sigma=sigma, sensitivity="1")


def claim(steps, *, eps=None, delta=None, lower, upper) -> Claim:
    """A claim on eps where delta is given, and on delta where eps is."""
    given, unknown = ("delta", "epsilon") if eps is None else ("epsilon", "delta")
    point = Fraction(delta if eps is None else eps)
    ends = {f"{given}_lower": point, f"{given}_upper": point}
    ends |= {f"{unknown}_lower": Fraction(lower), f"{unknown}_upper": Fraction(upper)}
    return Claim(tuple(steps), "eps" if eps is None else "delta", ends)


def verdicts(*args, **options) -> list[str]:
    return [proof.verdict for proof in prove.verify(claim(*args, **options))]


def gauss_delta(eps: float, mu: mpmath.mpf) -> mpmath.mpf:
    """Balle and Wang 2018, Theorem 8."""
    return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


@pytest.mark.parametrize("eps", ["0", "0.5", "4", "9"])
def test_gaussian_noise_is_bracketed_to_the_last_digits_of_its_closed_form(eps):
    with mpmath.workdps(60):
        truth = gauss_delta(mpmath.mpf(eps), mpmath.sqrt(10) / 3)
        lower, upper = (mpmath.nstr(truth * (1 + s), 45) for s in (mpmath.mpf("-1e-38"), mpmath.mpf("1e-38")))
    assert verdicts([gauss("3", 10)], eps=eps, lower=lower, upper=upper) == ["proved", "proved"]
    assert verdicts([gauss("3", 10)], eps=eps, lower=upper, upper=lower) == ["refuted", "refuted"]


CHEAP = [job for job in JOBS if not job.solve and len(job.parts) == 1 and job.parts[0].n != 2**20]


@pytest.mark.slow
@pytest.mark.parametrize("job", nightly.sharded(CHEAP, 3), ids=lambda job: job.name)
def test_the_answers_of_the_benchmark_are_proved_and_their_neighbours_refuted(job):
    steps = [
        step(
            part.mech,
            part.n,
            "none" if part.rate == 1 else "poisson",
            repr(part.rate),
            sensitivity="1",
            **{"sigma" if part.mech == "gauss" else "scale": repr(part.noise)},
        )
        for part in job.parts
    ]
    point = {"delta": repr(job.delta)} if job.eps is None else {"eps": repr(job.eps)}
    low, high = repr(job.truth * (1 - 1e-9)), repr(job.truth * (1 + 1e-9))
    assert verdicts(steps, **point, lower=low, upper=high) == ["proved", "proved"]
    assert verdicts(steps, **point, lower=high, upper=low) == ["refuted", "refuted"]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("sigma", "rate"), nightly.sharded([("0.6", "0.01"), ("1", "0.3"), ("4", "0.9")], 3))
def test_the_transform_of_sampled_gaussian_noise_is_that_of_quadrature(sigma, rate, sign):
    base = pairs.base_pair("gauss", {"sigma": Fraction(sigma), "sensitivity": EXACT})
    pair = pairs.poisson(base, pairs.ball(Fraction(rate)))
    turned = pair if sign > 0 else pair.reversed()
    kind = transform_inversion.Kind.of(turned, 1, 1e-30)
    values = transform_inversion.on_line(kind, arb(2), arb(3), 4, 80)
    q, mu = mpmath.mpf(rate), 1 / mpmath.mpf(sigma)
    for k, value in enumerate(values):
        z = mpmath.mpc(2, 3 * k)
        power = 1 + z if sign > 0 else -z
        truth = mpmath.quad(
            lambda x, power=power: mpmath.npdf(x) * (1 - q + q * mpmath.exp(mu * x - mu * mu / 2)) ** power,
            [-14, -7, -3, 0, 3, 7, 14, 30],
        )
        assert value.overlaps(acb(float(truth.real), float(truth.imag)) + acb(arb(0, 1e-12), arb(0, 1e-12)))


SMALL = [
    [gauss("1", 12, "poisson", "0.05")],
    [gauss("2", 12, "fixed", "0.1")],
    [step("laplace", 20, "none", scale="3", sensitivity="1")],
    [step("laplace", 20, "poisson", "0.2", scale="2", sensitivity="1")],
    [step("discrete-gauss", 20, "none", sigma="4", sensitivity="2")],
    [step("discrete-laplace", 20, "poisson", "0.1", scale="3", sensitivity="2")],
    [step("randomized-response", 20, "fixed", "0.2", eps0="0.4", delta0="0.00001")],
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", nightly.sharded([(steps,) for steps in SMALL], 2), ids=lambda steps: f"{steps[0].mech}-{steps[0].sampling}"
)
def test_the_brackets_of_the_methods_overlap(steps):
    job = prove.Job(Claim(tuple(steps), "eps", {}))
    x = pairs.ball(Fraction("0.7"))
    for order in range(len(job.orders)):
        brackets = []
        for method in (
            lambda order, side: job.lattice(order, side, x, 1e-4, 1),
            lambda order, side: job.lattice(order, side, x, 1e-4, 2),
            lambda order, side: job.inversion(order, side, x, 1e-4),
        ):
            low, high = (job.attempt(method, order, side) for side in (False, True))
            if low is not None and high is not None:
                brackets.append((low, high))
        assert len(brackets) >= 2
        assert all(low <= high for low, _ in brackets for _, high in brackets)


@pytest.mark.slow
@pytest.mark.parametrize("seed", nightly.sharded([4, 5, 13, 14, 160, 162], 2))
def test_brackets_of_random_jobs_are_proved(seed):
    """Jobs of several kinds; ``python -m benchmarks verifier`` runs 300 of them."""
    assert verifier.check(seed).verdict == "proved"


@pytest.mark.slow
@pytest.mark.parametrize("seed", nightly.sharded([1, 3, 6, 8, 10, 20, 152, 153], 2))
def test_lattices_of_random_jobs_enclose_the_bracket_of_the_accountant(seed):
    _, steps, arguments, delta = verifier.random_job(seed)
    row = budget(Process(steps, **arguments), delta=delta)
    job = prove.Job(certificate.read(json.dumps(certificates.of_guarantee(row, 1e-9))))
    low, high = (pairs.ball(Fraction(end)) for end in (row.epsilon.lower, row.epsilon.upper))
    for level in (0, 1):
        above = [job.attempt(lambda i, side, k=level: job.lattice(i, side, low, delta, k), i, True)
                 for i in range(len(job.orders))]  # fmt: skip
        below = [job.attempt(lambda i, side, k=level: job.lattice(i, side, high, delta, k), i, False)
                 for i in range(len(job.orders))]  # fmt: skip
        assert max(float(bound) for bound in above) >= delta * (1 - 1e-9)
        assert 0 < max(float(bound) for bound in below) <= delta * (1 + 1e-9)


PAPER = {
    "schema": "wpriv.certificate/1",
    "notion": "approximate-dp",
    "asked": "eps",
    "adjacency": "add-remove",
    "process": [{"mech": "gauss", "sigma": 4.0, "sensitivity": 1.0, "n": 65536, "sampling": "poisson", "rate": 0.01}],
    "epsilon_lower": 2.300765,
    "epsilon_upper": 2.3007653,
    "delta_lower": 0.0001,
    "delta_upper": 0.0001,
}


def answers(data) -> list[str]:
    return [proof.verdict for proof in prove.verify(certificate.read(json.dumps(data)))]


@pytest.mark.slow
def test_every_number_of_a_certificate_matters():
    """2.30076511509 by Laplace inversion in high precision: a number changed in its last digits breaks one end."""
    assert answers(PAPER) == ["proved", "proved"]
    changes = {"epsilon_lower": 2.3007652, "epsilon_upper": 2.300765}
    for name, value in changes.items():
        assert "refuted" in answers(
            {**PAPER, name: value, **({"epsilon_lower": 2.3} if name == "epsilon_upper" else {})}
        )
    for factor in (1 - 1e-5, 1 + 1e-5):
        assert "refuted" in answers({**PAPER, "delta_lower": 1e-4 * factor, "delta_upper": 1e-4 * factor})
        for name in ("sigma", "sensitivity", "rate"):
            changed = {**PAPER["process"][0], name: PAPER["process"][0][name] * factor}
            assert "refuted" in answers({**PAPER, "process": [changed]}), name
    for n in (65535, 65537):
        assert "refuted" in answers({**PAPER, "process": [{**PAPER["process"][0], "n": n}]})


def test_the_verifier_shares_no_code_with_the_accountants():
    import ast
    from pathlib import Path

    files = sorted(Path(prove.__file__).parent.glob("*.py"))
    assert len(files) >= 6
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                allowed = name.startswith("wpriv.verify") or name in ("wpriv.errors", "wpriv.verify")
                assert allowed or name.partition(".")[0] not in ("wpriv", "numpy", "scipy", "mpmath"), (file, name)
