"""The words for the settings of a sweep, of which each is a case or a panel."""

from __future__ import annotations

from wpriv.results.plot import setting_words


def test_settings_are_named_by_their_symbols_and_the_number_of_a_run_is_left_out():
    labels = {"data.privatize.eps": "inf", "options.alpha": 0.75, "data.first": 400, "options.loss": "plain", "run": 2}
    assert setting_words(labels) == ["ε = ∞", "α = 0.75", "n = 400", "loss = plain"]


def test_settings_that_differ_in_the_last_digit_have_different_words():
    assert setting_words({"privacy.eps": 1.23456789}) == ["ε = 1.23456789"]
    assert setting_words({"data.first": 1234567}) == ["n = 1234567"]
