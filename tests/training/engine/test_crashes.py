"""A training that is killed at any of its file operations ends in a refusal or in all steps paid, never in fewer."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.points import ROOT
from tests.training.engine.crashes import SCENARIOS

LEAST_OPERATIONS = 15  # fewer would mean that the operations are no longer seen


@pytest.fixture(scope="module")
def outcomes():
    """The outcomes of all scenarios, of one process that loads torch once."""
    words = [sys.executable, "-m", "tests.training.engine.crashes"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {outcome["scenario"]: outcome for outcome in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_training_killed_at_any_file_operation_states_every_noisy_sum_that_was_drawn(scenario, outcomes):
    # oracle: the bits of every noisy sum, noted outside the folder as it is drawn
    assert outcomes[scenario]["operations"] >= LEAST_OPERATIONS
    assert outcomes[scenario]["faults"] == []
