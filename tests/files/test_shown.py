"""Results as text, as tables of notebooks and as LaTeX: one sentence each, and nothing unescaped."""

from __future__ import annotations

import html.parser
import re

import numpy as np
import pytest

import wpriv
from wpriv import Gauss, Laplace, Poisson, Process, Step
from wpriv.files import shown

PROCESS = Process((Step(Gauss(4.0), 100, Poisson(0.01)),))
STEPS = [{"mech": "gauss", "sigma": 4}]
RESULTS = {
    "eps": lambda: wpriv.budget(PROCESS, delta=1e-5, attack=True),
    "delta": lambda: wpriv.budget(PROCESS, eps=0.1),
    "mu": lambda: wpriv.budget(Gauss(4.0), with_mu=True),
    "limit": lambda: wpriv.budget(PROCESS, delta=1e-5, accountant="clt"),
    "calibration": lambda: wpriv.calibrate("gauss", eps=1, delta=1e-5),
    "curve": lambda: wpriv.curve(PROCESS),
    "comparison": lambda: wpriv.compare(process=STEPS, delta=1e-5, sweep={"over": "n", "values": [1, 4]}),
    "decision": lambda: wpriv.verify_claim("eps=1,delta=0.01", "gauss", sigma=1),
    "order": lambda: wpriv.privacy_order(Process((Step(Gauss(1.0)),)), Process((Step(Laplace(1.0)),))),
    "reports": lambda: wpriv.privatize(np.ones((5, 3)), "local-gauss", eps=2, delta=1e-5, radius=1, seed=3),
}


class Balanced(html.parser.HTMLParser):
    """A parser that notes tags which are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_sentence_and_a_short_repr_and_a_table_in_a_notebook(name):
    result = RESULTS[name]()
    sentence, *warnings = str(result).split("\n")
    assert 10 < len(sentence) < 250
    assert sentence == result.sentence()
    assert warnings == [f"  warning: {line}" for line in result.warnings]
    assert repr(result).split("\n") == [f"<{type(result).__name__}: {sentence}>", *warnings]
    parser = Balanced()
    parser.feed(result._repr_html_())
    assert parser.open == []
    assert sentence[:20] in parser.text
    assert all(line in parser.text for line in result.warnings)
    outside = re.sub(r"\$[^$]*\$", "", result._repr_latex_())
    assert not re.search(r"(?<!\\)[_^#]", outside)
    assert outside.count("{") == outside.count("}")


def test_a_guarantee_is_the_number_that_may_be_promised():
    eps, delta, mu = (RESULTS[name]() for name in ("eps", "delta", "mu"))
    assert float(eps) == eps.epsilon.upper > eps.epsilon.lower
    assert float(delta) == delta.delta.upper
    assert float(mu) == mu.extra["mu_upper"]
    assert float(wpriv.curve(PROCESS).at(eps=0.1)) == wpriv.curve(PROCESS).delta(eps=0.1)
    calibration = RESULTS["calibration"]()
    assert float(calibration) == calibration.value
    assert float(calibration.guarantee) == calibration.guarantee.epsilon.upper <= 1
    with pytest.raises(TypeError):
        float(RESULTS["comparison"]())


@pytest.mark.parametrize(
    ("accountant", "mech", "words"),
    [
        ("pld", Gauss(4.0), "eps = 0.926342 (exact, delta 1e-5)"),
        ("rdp", Gauss(4.0), "eps = 1.01229 (upper bound, delta 1e-5)"),
        ("clt", Gauss(4.0), "eps = 0.926342 (APPROXIMATE, not a guarantee, delta 1e-5)"),
        ("pdp", Gauss(4.0), "eps = 1.09748 (exact, probabilistic-dp, delta 1e-5)"),
        ("pld", PROCESS, "eps = 0.0795139 (certified, delta 1e-5)"),
    ],
)
def test_a_headline_has_the_answer_its_claim_and_where_it_holds(accountant, mech, words):
    row = wpriv.budget(mech, delta=1e-5, accountant=accountant)
    assert row.headline() == words
    assert row.sentence() == f"{words} by {accountant}: {row.process}"
    printed = float(words.split()[2])
    assert row.epsilon.safe <= printed <= row.epsilon.safe * (1 + 1e-5)  # rounded up


def test_the_headline_of_a_calibration_has_the_value_and_the_guarantee_with_it():
    assert str(RESULTS["calibration"]()).startswith("sigma = 3.7306321 (exact, eps 1, delta 1e-5) by pld: gauss")
    most = wpriv.calibrate("gauss", sigma=40, eps=1, delta=1e-5).guarantee
    assert most.headline() == "n = 114 (exact, eps 0.995396, delta 1e-5)"
    assert ("most", "the next larger value misses the target") in most.facts()


def test_latex_keeps_no_sign_with_a_meaning_of_its_own():
    assert shown.latex("a_b & 50% #1 {x} 1.5e-07") == r"a\_b \& 50\% \#1 \{x\} $1.5 \times 10^{-7}$"
    assert shown.latex("eps <= 1e-5, delta0") == r"$\varepsilon$ $\le$ $10^{-5}$, delta0"
    row = RESULTS["eps"]().to_latex()
    assert row.endswith(r" \\")
    assert row.count(" & ") == 4


def test_a_comparison_is_a_table_with_the_rules_of_booktabs():
    lines = RESULTS["comparison"]().to_latex().splitlines()
    assert lines[:2] == ["% values: eps at delta 1e-5, rounded up", "% neighbours: add-remove"]
    assert r"\toprule" in lines
    assert r"1 & 0.926342 \\" in lines
    assert lines[-1] == r"\end{tabular}"


def test_a_notebook_escapes_what_a_text_holds():
    page = shown.html_of("a < b & c", [("<script>", '"x"')])
    assert "<script>" not in page
    assert "a &lt; b &amp; c" in page
