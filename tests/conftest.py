"""What all tests share: one thread a process, the same examples in each run, blank figures, no waits nor repeats.

The default run leaves out the tests marked ``nightly``, which ``nox -s nightly`` runs (see ``tests/nightly.py``).
``pytest --hypothesis-profile=random`` draws new examples, to look for failures. Examples have no deadline: no test
fails because the machine is slow.
"""

import gc
import os
import sys

# before numpy and torch are loaded; child processes inherit the environment
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import mpmath  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests import blank_figures, nightly, repeated_questions, waits  # noqa: E402
from tests.postgres import postgres  # noqa: E402, F401

waits.leave_out()
# of every oracle, whichever modules share a process
mpmath.mp.dps = 60

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None)
settings.load_profile("repeatable")
# where hypothesis keeps the settings of a property
SETTINGS = "_hypothesis_internal_use_settings"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Let idle workers of ``-n`` take tests from busy ones, where pytest-xdist is installed and no mode is named."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_collection_modifyitems(config, items):
    """Draw fewer examples of properties, and leave out the tests marked ``nightly`` unless ``-m`` names the mark."""
    if nightly.WHOLE or "nightly" in config.option.markexpr:
        return
    for function in {item.obj for item in items if hasattr(getattr(item, "obj", None), SETTINGS)}:
        drawn = getattr(function, SETTINGS)
        setattr(function, SETTINGS, settings(drawn, max_examples=nightly.examples(drawn.max_examples)))
    kept, left_out = [], []
    for item in items:
        (left_out if item.get_closest_marker("nightly") else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_collection_finish(session):
    """Keep modules and tests, which live as long as the process, out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Render figures, compute answers and probe networks where these are the subject, before the first fixture."""
    blank_figures.set_rendering(item)
    repeated_questions.set_memory(item)
    if "wpriv.training.clipping.choose_method" in sys.modules:  # without it, no test here loads torch
        from tests import probed_networks

        probed_networks.set_probing(item)
