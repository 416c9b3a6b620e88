"""A training that is killed at any of its file operations ends in a refusal or in all steps paid, never in fewer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.engine.crashes import SCENARIOS
from tests.points import ROOT

LEAST_OPERATIONS = 15  # fewer would mean that the operations are no longer seen


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_training_killed_at_any_file_operation_states_every_noisy_sum_that_was_drawn(scenario):
    # oracle: the bits of every noisy sum, noted outside the folder as it is drawn
    words = [sys.executable, "-m", "tests.engine.crashes", scenario]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["operations"] >= LEAST_OPERATIONS
    assert outcome["faults"] == []
