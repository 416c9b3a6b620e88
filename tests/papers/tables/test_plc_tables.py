"""Tables of the figures of Sommer, Meiser, Mohammadi (2019): output distributions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.errors import UsageError
from wpriv.papers.tables import _declared


@given(st.integers(2, 30), st.integers(-20, 20), st.data())
def test_outputs_of_uniform_noise_overlap_in_all_but_the_shifted_outcomes(outcomes, least, data):
    shift = data.draw(st.integers(1, outcomes - 1))
    rows = _declared.UniformOutputs(outcomes=outcomes, sensitivity=shift, least=least).rows()
    first, second = ({r["outcome"]: r["probability"] for r in rows if r["case"] == c} for c in _declared.INPUTS)
    assert sum(first.values()) == pytest.approx(1)
    assert sum(second.values()) == pytest.approx(1)
    identifying = [x for x, share in first.items() if share > 0 and second[x] == 0]
    assert identifying == list(range(least, least + shift))


def test_inputs_without_a_common_outcome_are_refused():
    with pytest.raises(UsageError, match="no outcome in common"):
        _declared.UniformOutputs(outcomes=2, sensitivity=2).rows()
