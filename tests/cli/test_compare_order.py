"""``wpriv compare A B --order``: the verdict in words and JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.command_line import call


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("gauss sigma=2", "gauss sigma=1", "A is more private than B at every eps"),
        ("gauss sigma=1", "gauss sigma=2", "B is more private than A at every eps"),
        ("gauss sigma=2 n=4", "gauss sigma=1", "A and B are equally private"),
        ("gauss sigma=1", "laplace scale=1", "the curves of A and B cross"),
    ],
)
def test_the_order_is_said_in_words(capsys, a, b, words):
    code, out, _ = call(capsys, "compare", a, b, "--order")
    assert code == 0
    assert words in out


def test_json_has_the_range_and_the_crossing(capsys):
    code, out, _ = call(capsys, "compare", "--order", "gauss sigma=1", "laplace scale=1", "--eps", "3", "--json")
    data = json.loads(out)
    assert (code, data["schema"], data["verdict"], data["eps_upper"]) == (0, "wpriv.order/1", "crosses", 3.0)
    (crossing,) = data["crossings"]
    # mpmath: 2 Phi-form of 1-GDP equals 1 - e^((eps - 1)/2) at eps = 0.3287...
    assert crossing["eps_lower"] <= 0.3290 <= crossing["eps_upper"] + 5e-4


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--order",), "two processes"),
        (("--order", "gauss sigma=1"), "found 1"),
        (("gauss sigma=1", "gauss sigma=2"), "--order"),
        (("--within", "0.1", "--mech", "gauss", "--sigma", "1"), "--within"),
        (("--order", "gauss sigma=1", "gauss sigma=2", "--mech", "gauss"), "--mech"),
        (("--order", "gauss sigma=1", "gauss sigma=2", "--why"), "--why"),
        (("--order", "gauss sigma=1", "gauss sigma=2", "--csv"), "--csv"),
        (("--order", "gauss sigma=1", "laplace scale=1", "--eps", "-1"), "--eps"),
        (("--order", "gauss sigma=1", "laplace scale=1", "--eps", "1", "--delta", "0.1"), "--delta"),
        (("--order", "gauss sigma=1", "laplace scale=1", "--within", "2"), "--within"),
        (("--order", "gauss sigma=1", "nothing"), "nothing"),
        (("--order", "gauss sigma=1", "gaus sigma=1"), "did you mean 'gauss'"),
    ],
)
def test_a_bad_call_is_refused_and_names_what_is_wrong(capsys, words, shown):
    code, out, err = call(capsys, "compare", *words)
    assert (code, out) == (2, "")
    assert shown in err


def test_a_process_that_is_known_from_above_only_has_no_order(capsys):
    code, _, err = call(capsys, "compare", "--order", "gauss sigma=1", "zcdp rho=0.5")
    assert code == 3
    assert "upper bounds" in err
