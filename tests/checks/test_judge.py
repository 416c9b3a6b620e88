"""The verdict on premises: values of the specification, both directions, roundings, neighbours, what is missing."""

from __future__ import annotations

import json
import math

import pytest

import wpriv
from tests.command_line import call
from wpriv.checks.check import check
from wpriv.checks.premises import of_mapping

RIGHT = {
    "claim": {"eps": 1.33617, "delta": 1e-5, "by": "opacus 1.6.0 prv", "printed": False},
    "unit": "record",
    "max_per_unit": 1,
    "records": 5000,
    "records_public": True,
    "sampling": {"kind": "poisson", "rate": 0.01, "rate_accounted": 0.01},
    "steps": 500,
    "noise": {"multiplier": 1.0, "seed": "os"},
    "composition": {"runs": 1, "other": []},
}


def of(**changes):
    """The verdict on the right run with other premises; None leaves one out. A dot is written as two underscores."""
    premises = {fact.field: fact.value for fact in of_mapping(RIGHT)}
    premises |= {name.replace("__", "."): value for name, value in changes.items()}
    return check({name: value for name, value in premises.items() if value is not None})


def printed(verdict):
    return [verdict.sentence(), *(f"{label}: {words}" for label, words in verdict.facts())]


def test_a_right_run_is_proved_in_the_words_of_the_specification():
    assert printed(of()) == [
        "(1.33617, 1e-5)-DP is proved for zero-out neighbours: delta(1.33617) is at most 9.12096e-6",
        "claimed: eps = 1.33617 at delta = 1e-5 by opacus 1.6.0, prv",
        "reading: zero-out neighbours, poisson sampling at rate 0.01, n = 500 compositions",
        "process: gauss (sigma 1, sensitivity 1), n = 500, poisson sampling at rate 0.01",
        "eps at delta = 1e-5: [1.32604, 1.32605]",
        "declared: one record a person, size of the data public, seed secret, no other release, and 7 more premises",
        "by pld: Sommer, Meiser, Mohammadi 2019, Theorem 1; Doroshenko et al. 2022 (pessimistic discretisation); "
        "wpriv (optimistic)",
    ]


def test_a_shuffled_run_is_refuted_in_the_words_of_the_specification():
    verdict = of(sampling__kind="shuffle")
    assert printed(verdict) == [
        "(1.33617, 1e-5)-DP is refuted for zero-out neighbours: delta(1.33617) is at least 0.085681",
        "claimed: eps = 1.33617 at delta = 1e-5 by opacus 1.6.0, prv, for poisson sampling",
        "contradicted: sampling is shuffle, poisson was accounted for",
        "process: gauss (sigma 1, sensitivity 1), n = 500, shuffle sampling at rate 0.01",
        "eps at delta = 1e-5: [7.12291, 11.4801]",
        "add-remove: refuted as well, since it would give delta(2.67234) at most 4.80445e-5; found at least 0.0152893",
        'test: say "in" where the privacy loss exceeds 1.33617; TPR - e^eps FPR at least 0.0856813',
        "change: draw the batches by Poisson sampling, or state eps = 11.4801 for zero-out neighbours",
    ]
    sampling = "sampling is shuffle, poisson was accounted for"
    assert verdict.failure() == f"the claim (1.33617, 1e-5)-DP is refuted: {sampling}"


def test_missing_premises_have_the_verdict_under_each_value():
    verdict = of(sampling__kind=None, records_public=None, max_per_unit=None)
    assert (verdict.verdict, verdict.exit_code) == ("incomplete", 3)
    lines = printed(verdict)
    assert lines[0] == "(1.33617, 1e-5)-DP is not decided: 3 premises are missing from the premises"
    assert lines[1:4] == [
        "missing: sampling.kind   poisson: proved, eps 1.32605; shuffle: refuted, eps in [7.12291, 11.4801]",
        "missing: records_public  yes: no change; no: not proved where the divisor was int(N / batches)",
        "missing: max_per_unit    1: no change; 4: refuted, eps 6.24313",
    ]
    assert verdict.failure().endswith("lacks sampling.kind, records_public, max_per_unit")


@pytest.mark.parametrize(
    ("changes", "verdict", "ends"),
    [
        # more was accounted for than ran
        ({"steps": 400, "steps_accounted": 500}, "proved", None),
        ({"sampling__rate": 0.009}, "proved", None),
        # and less
        ({"steps": 510, "steps_accounted": 500}, "refuted", None),
        ({"composition__runs": 2}, "refuted", None),
        ({"clip__scope": "per tensor", "clip__tensors": 4}, "refuted", None),
        ({"clip__per": "microbatch"}, "refuted", None),
        ({"noise__std": 0.1, "clip__norm": 0.1}, "proved", (1.32604, 1.32605)),
        ({"noise__std": 0.08, "clip__norm": 0.1}, "refuted", None),
        # whatever the numbers are
        ({"noise__seed": "public"}, "refuted", (math.inf, math.inf)),
        ({"model__trained_by": "SGD"}, "refuted", (math.inf, math.inf)),
        ({"steps": 0}, "refuted", (math.inf, math.inf)),
        ({"model__mixes_records": ["BatchNorm2d"]}, "contradicted", None),
        # other ways of drawing
        ({"sampling__kind": "none"}, "refuted", None),
        ({"sampling__workers": 2}, "refuted", None),
        ({"divisor": "batch"}, "contradicted", None),
    ],
    ids=str,
)
def test_guarantees_are_compared_and_no_fields(changes, verdict, ends):
    found = of(**changes)
    assert found.verdict == verdict
    if ends is not None:
        assert found.epsilon == pytest.approx(ends, abs=1e-5)


def test_shuffled_batches_lie_between_their_worst_case_and_passes_without_sampling():
    cases = {"order": 5, "shuffle": 5}
    for kind, passes in cases.items():
        found = of(sampling__kind=kind, noise__multiplier=1.5)
        exact = wpriv.budget("gauss", sigma=1.5, n=passes, delta=1e-5).epsilon.safe
        assert found.epsilon[1] == pytest.approx(exact, rel=1e-9)
        assert (found.epsilon[0] == pytest.approx(exact, rel=1e-9)) == (kind == "order")


def test_a_last_batch_that_is_dropped_makes_the_lower_end_smaller():
    whole = of(sampling__kind="shuffle", sampling__batch=50, records=5000)
    dropped = of(sampling__kind="shuffle", sampling__batch=49, records=5000)
    assert dropped.verdict == "refuted"
    assert 0 < whole.epsilon[0] - dropped.epsilon[0] < 0.2


@pytest.mark.parametrize(("eps", "verdict"), [(1.326, "proved"), (1.3255, "refuted"), (1.3, "proved"), (1, "refuted")])
def test_a_printed_figure_has_half_of_its_last_digit_as_rounding(eps, verdict):
    # truth [1.32604, 1.32605]: 1.326 is compared at 1.3265, 1.3 at 1.35, and a whole number is a target
    found = of(claim__eps=eps, claim__printed=True)
    assert found.verdict == verdict
    assert any("half of its last digit" in line for line in printed(found)) == (eps != 1)
    assert of(claim__eps=eps).verdict == "refuted"  # as an exact figure


def test_neighbours_are_part_of_the_claim():
    assert of(adjacency="add-remove", records_public=False).adjacency == "add-remove"
    stated = of(adjacency="add-remove")
    assert (stated.adjacency, stated.verdict) == ("zero-out", "proved")
    # a shuffled figure breaks an add-remove claim only through what it implies for zero-out neighbours
    shuffled = {"sampling__kind": "shuffle", "adjacency": "add-remove", "records_public": False}
    assert of(**shuffled).verdict == "refuted"
    large = {"sampling__rate": 0.1, "sampling__rate_accounted": 0.1, "steps": 200, "claim__eps": 9.98}
    assert of(**{**shuffled, **large}).verdict == "contradicted"
    assert of(sampling__kind="shuffle", **large).verdict == "refuted"


def test_a_divisor_that_follows_the_secret_number_of_records_is_refuted_by_the_size_of_the_noise():
    secret = {"records": 120, "records_public": False, "divisor": "expected", "noise__multiplier": 2}
    secret |= {"sampling__rate": 0.2, "sampling__rate_accounted": 0.2, "steps": 100, "claim__eps": 5.0335}
    found = of(**secret, model__parameters=10)
    assert found.verdict == "refuted"
    assert found.epsilon[0] == pytest.approx(10.2945, abs=1e-4)  # chi-square, in the specification at least 10.29
    assert of(**secret).verdict == "incomplete"
    assert of(**{**secret, "records_public": True}).verdict == "proved"


def test_what_is_declared_against_an_object_is_contradicted():
    found = check({**RIGHT, "steps": 500}, premises={"steps": 600})
    assert found.verdict == "contradicted"
    assert any(label == "under each" for label, _ in found.facts())


def test_the_command_prints_the_lines_and_its_exit_code_is_the_verdict(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("\n".join(["kind: check", *(f"{key}: {json.dumps(value)}" for key, value in RIGHT.items())]))
    code, out, err = call(capsys, "check", str(path))
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("(1.33617, 1e-5)-DP is proved for zero-out neighbours")
    code, out, err = call(capsys, "check", str(path), "--premise", "composition.selected=40")
    assert code == 1
    assert (
        out.splitlines()[-1]
        == err.splitlines()[-1]
        == ("wpriv: the claim (1.33617, 1e-5)-DP is refuted: 40 runs touched the data, one was accounted for")
    )
    code, out, _ = call(capsys, "check", str(path), "--json")
    data = json.loads(out)
    assert (data["schema"], data["verdict"], data["exit_code"]) == ("wpriv.check/1", "proved", 0)
    path.write_text(path.read_text().replace("max_per_unit: 1\n", ""))
    assert call(capsys, "check", str(path))[0] == 3
    assert call(capsys, "check", str(path), "--premise", "max_per_unit=0")[0] == 2
