"""The schema of recipes, and the grids of their sweeps. Oracles: jsonschema, and the definitions by hand."""

from __future__ import annotations

import math

import jsonschema
import pytest

from tests.config.test_validate import SOUND
from wpriv.config import field_types, schema, yaml_document
from wpriv.core.kinds import SAMPLINGS


def test_grids_end_where_they_say():
    assert field_types.expand_values({"linspace": [0, 1, 11]})[-1] == 1.0
    ends = field_types.expand_values({"geomspace": [0.1, 10, 5]})
    assert (ends[0], ends[-1]) == (0.1, 10)
    assert math.isclose(ends[2], 1.0)


def test_the_sampling_kinds_of_a_recipe_are_those_of_a_process():
    assert str(schema.Step.model_fields["sampling"].annotation).count("'") == 2 * len(SAMPLINGS)
    assert all(f"'{kind}'" in str(schema.Step.model_fields["sampling"].annotation) for kind in SAMPLINGS)


@pytest.mark.slow
def test_the_exported_schema_accepts_a_sound_recipe_and_refuses_an_unknown_key():
    exported = schema.json_schema()
    data = yaml_document.parse(SOUND.replace("2^16", "65536"), "r.yaml").data
    jsonschema.validate(data, exported)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "figur": "x"}, exported)


def test_whole_values_of_a_spread_are_rounded_and_merged():
    assert field_types.expand_values({"linspace": [1, 3, 5]}, whole=True) == [1, 2, 3]
    assert field_types.expand_values([1.5, 1.5], whole=True) == [1.5, 1.5]
