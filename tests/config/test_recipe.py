"""Resolved recipes: quick overrides, and what panels inherit. Oracle: the text itself."""

from __future__ import annotations

from tests.config.test_validate import SOUND
from wpriv.config import field_types, recipe, yaml_document


def test_quick_overrides_apply_only_when_asked():
    full = recipe.check(yaml_document.parse(SOUND, "r.yaml"))
    quick = recipe.check(yaml_document.parse(SOUND, "r.yaml"), quick=True)
    assert field_types.expand_values(full.panels[0].sweep[0].values) == [0, 1, 2, 3, 4]
    assert field_types.expand_values(quick.panels[0].sweep[0].values) == [1]


def test_a_panel_inherits_what_it_does_not_say_and_replaces_the_question():
    panels = "panels:\n  - {name: b, delta: 1e-4, sweep: {over: n, values: {powers: [2, 0, 3]}}}\n"
    text = SOUND[: SOUND.index("expect:")] + panels
    (panel,) = recipe.check(yaml_document.parse(text, "r.yaml")).panels
    assert (panel.accountants, panel.delta, panel.eps) == (["pld", "gdp"], 1e-4, None)
    assert field_types.expand_values(panel.sweep[0].values) == [1, 2, 4, 8]
