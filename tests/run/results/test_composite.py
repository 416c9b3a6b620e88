"""The words for the settings of a sweep, of which each is a case or a panel."""

from __future__ import annotations

from wpriv.run.results.composite import setting_words


def test_settings_are_named_by_their_symbols_and_the_number_of_a_run_is_left_out():
    labels = {"data.privatize.eps": "inf", "options.alpha": 0.75, "data.first": 400, "options.loss": "plain", "run": 2}
    assert setting_words(labels) == ["ε = ∞", "α = 0.75", "n = 400", "loss = plain"]
