"""Claims are read as users write them, and anything else is refused with the forms that exist."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.config.plain_words import Claim, parse_claim
from wpriv.errors import UsageError


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("eps=3,delta=1e-5", Claim("approximate-dp", eps=3.0, delta=1e-5)),
        (" delta = 1e-5 , EPS = 3 ", Claim("approximate-dp", eps=3.0, delta=1e-5)),
        ("eps=1", Claim("approximate-dp", eps=1.0)),
        ("eps=0,delta=0", Claim("approximate-dp")),
        ("mu=1/2", Claim("gdp", mu=0.5)),
        ("mu=1,fpr=1e-9", Claim("gdp", mu=1.0, fpr=1e-9)),
        ("rho=0.5", Claim("zcdp", rho=0.5)),
        ("xi=0.1,rho=0.5", Claim("zcdp", rho=0.5, xi=0.1)),
        ("rho=0, xi=1", Claim("zcdp", xi=1.0)),
    ],
)
def test_a_claim_is_read(text, claim):
    assert parse_claim(text) == claim


@pytest.mark.parametrize(
    "text",
    ["", "3", "eps", "eps=", "eps=x", "eps=-1", "eps=1,eps=2", "eps=nan", "eps=1,delta=1", "eps=1,delta=-1e-9",
     "delta=1e-5", "mu=-1", "mu=1,eps=1", "mu=1,fpr=0", "mu=1,fpr=0.6", "rho=-1", "rho=1,delta=0.1", "gamma=1",
     "xi=0.1", "xi=-1,rho=1", "xi=1,mu=1"],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError):
        parse_claim(text)


def test_a_misspelt_key_is_suggested():
    with pytest.raises(UsageError, match="did you mean 'eps'"):
        parse_claim("epsilo=1")


@given(st.text(max_size=40))
def test_no_text_ends_in_another_error(text):
    with contextlib.suppress(UsageError):
        assert isinstance(parse_claim(text), Claim)


def test_words_of_other_programs_and_percentages_are_read():
    assert parse_claim("epsilon=1,target_delta=1%") == parse_claim("eps=1,delta=0.01")
