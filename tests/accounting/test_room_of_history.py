"""What fits behind a history: sums of mu^2 in closed form, and other verbs on the same steps."""

from __future__ import annotations

import json
import math

import pytest

import wpriv
from wpriv.cli.main import main
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import conversions

TRAINED = [[1.1, 0.01, 1000], [0.9, 0.01, 300]]
FURTHER = {"sigma": 1.0, "sampling": "poisson", "rate": 0.01}


@pytest.fixture
def history(tmp_path):
    def write(steps):
        file = tmp_path / "history.json"
        file.write_text(json.dumps(steps))
        return str(file)

    return write


@pytest.mark.slow
def test_further_steps_fixed_in_advance_are_the_most_that_fit(history):
    path = history(TRAINED)
    answer = wpriv.calibrate("gauss", **FURTHER, eps=4, delta=1e-5, history=path)
    n = int(answer.value)
    assert answer.guarantee.extra["calibrated"]["most"] is True
    fits, exceeds = (wpriv.budget(history=history([*TRAINED, [1.0, 0.01, k]]), delta=1e-5).epsilon for k in (n, n + 1))
    assert fits.upper <= 4 < exceeds.lower
    assert answer.guarantee.extra["room"]["spent"] == pytest.approx(
        wpriv.budget(history=history(TRAINED), delta=1e-5).epsilon.safe
    )
    assert any("adaptive" in line for line in answer.guarantee.warnings)


@pytest.mark.slow
def test_further_steps_chosen_from_outputs_lie_between_the_filter_and_the_plan(history):
    path = history(TRAINED)
    planned = int(wpriv.calibrate("gauss", **FURTHER, eps=4, delta=1e-5, history=path).value)
    answer = wpriv.calibrate("gauss", **FURTHER, eps=4, delta=1e-5, history=path, adaptive=True)
    room = answer.guarantee.extra["room"]
    assert (room["accountant"], room["at_most"]) == ("rdp-filter", planned)
    assert 0 < room["fits"] == answer.value < planned
    again = wpriv.budget(history=history([*TRAINED, [1.0, 0.01, int(answer.value)]]), delta=1e-5, adaptive=True)
    assert again.epsilon.safe == pytest.approx(answer.guarantee.epsilon.safe, rel=1e-9)
    assert again.epsilon.safe <= 4
    more = wpriv.budget(history=history([*TRAINED, [1.0, 0.01, int(answer.value) + 1]]), delta=1e-5, adaptive=True)
    assert more.epsilon.safe > 4


def test_gauss_without_sampling_loses_nothing(history):
    """The sum of (1 / sigma)^2 that the target allows, in closed form."""
    path = history([[10, 1, 20], [8, 1, 10]])
    mu_squared = conversions.exact(4, 1e-5) ** -2
    expected = math.floor((mu_squared - 20 / 100 - 10 / 64) * 100)
    for adaptive in (False, True):
        answer = wpriv.calibrate("gauss", sigma=10, eps=4, delta=1e-5, history=path, adaptive=adaptive)
        assert answer.value == expected
    assert answer.guarantee.claim == "exact"
    room = answer.guarantee.extra["room"]
    assert (room["accountant"], room["fits"], room["at_most"]) == ("gdp", expected, expected)


@pytest.mark.slow
def test_rate_behind_gauss_without_sampling_meets_the_target_of_the_filter(history):
    path = history([[10, 1, 1]])
    answer = wpriv.calibrate(
        "gauss", sigma=4, n=100, sampling="poisson", eps=1, delta=1e-5, history=path, adaptive=True
    )
    both = history([[10, 1, 1], [4, answer.value, 100]])
    assert (answer.parameter, answer.guarantee.extra["room"]["accountant"]) == ("rate", "rdp-filter")
    assert wpriv.budget(history=both, delta=1e-5, adaptive=True).epsilon.safe == pytest.approx(1, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", [False, True])
def test_noise_behind_a_history_meets_the_target(history, adaptive):
    path = history(TRAINED)
    answer = wpriv.calibrate(
        "gauss", n=500, sampling="poisson", rate=0.01, eps=4, delta=1e-5, history=path, adaptive=adaptive
    )
    both = history([*TRAINED, [answer.value, 0.01, 500]])
    assert answer.parameter == "sigma"
    assert wpriv.budget(history=both, delta=1e-5, adaptive=adaptive).epsilon.safe == pytest.approx(4, rel=1e-5)


@pytest.mark.slow
def test_other_mechanisms_stand_behind_a_history(history):
    path = history([{"mech": "laplace", "scale": 20, "n": 5}])
    answer = wpriv.calibrate("dp", eps0=0.1, eps=1, delta=1e-6, history=path)
    steps = [{"mech": "laplace", "scale": 20, "n": 5}, {"mech": "dp", "eps0": 0.1, "n": int(answer.value)}]
    assert wpriv.budget(history=history(steps), delta=1e-6).epsilon.safe <= 1


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_history_beyond_the_target_leaves_no_room(history, adaptive):
    with pytest.raises(Unsupported, match=r"the history alone has eps = .* nothing more fits"):
        wpriv.calibrate("gauss", **FURTHER, eps=1.5, delta=1e-5, history=history(TRAINED), adaptive=adaptive)


def test_combinations_without_meaning_are_refused(history):
    path = history(TRAINED)
    with pytest.raises(UsageError, match="history"):
        wpriv.calibrate("gauss", sigma=1, eps=1, delta=1e-5, adaptive=True)
    with pytest.raises(UsageError, match="chooses the accountant itself"):
        wpriv.calibrate("gauss", sigma=1, eps=4, delta=1e-5, history=path, adaptive=True, accountant="rdp")
    with pytest.raises(UsageError, match="compare_classical"):
        wpriv.calibrate("gauss", eps=4, delta=1e-5, history=path, compare_classical=True)
    with pytest.raises(UsageError, match="above 0"):
        wpriv.calibrate("gauss", **FURTHER, eps=0, delta=0.9, history=path, adaptive=True)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ("--eps 1.5", 3, "Raise --eps or --delta"),
        ("--eps 4 --accountant rdp --adaptive", 2, "--adaptive"),
        ("--eps 4 --repeats geometric:mean=20", 2, "--repeats"),
    ],
)
def test_errors_behind_a_history_name_the_flag(history, capsys, flags, code, words):
    line = f"calibrate --history {history(TRAINED)} --mech gauss --sigma 1 --sampling poisson --rate 0.01 --delta 1e-5"
    assert main(f"{line} {flags}".split()) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_the_answer_says_how_many_steps_fit_at_least_and_at_most(history, capsys):
    line = f"calibrate --history {history(TRAINED)} --mech gauss --sigma 1 --sampling poisson --rate 0.01"
    assert main(f"{line} --eps 4 --delta 1e-5 --adaptive".split()) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "more steps fit, by rdp-filter; at most" in text
    assert main(f"budget --history {history(TRAINED)} --delta 1e-5 --adaptive --quiet".split()) == 0
    assert f"spent before eps = {capsys.readouterr().out.strip()}" in text
