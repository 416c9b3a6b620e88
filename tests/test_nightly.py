"""What the default run leaves out, and that it leaves out nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import blank_figures, nightly
from tests.points import ROOT

SETTINGS = "_hypothesis_internal_use_settings"


def test_the_shards_of_a_family_have_each_case_once(monkeypatch):
    monkeypatch.setattr(nightly, "WHOLE", False)
    seen = []
    for shard in range(3):
        monkeypatch.setattr(nightly, "SHARD", shard)
        params = nightly.sharded([*range(9), (9,), pytest.param(10, id="ten")], 3)
        assert len(params) == 11
        seen += [param.values[0] for param in params if not param.marks]
    assert sorted(seen) == list(range(11))


def test_at_night_every_case_runs_and_every_example_is_drawn(monkeypatch):
    monkeypatch.setattr(nightly, "WHOLE", True)
    assert not any(param.marks for param in nightly.sharded(range(9), 3))
    assert nightly.examples(300) == 300
    monkeypatch.setattr(nightly, "WHOLE", False)
    assert [nightly.examples(count) for count in (300, 40, 20, 5)] == [37, 5, 3, 3]


@settings(max_examples=50, deadline=None)
@given(st.integers())
def test_a_property_draws_fewer_examples_by_default(number):
    assert isinstance(number, int)
    drawn = getattr(test_a_property_draws_fewer_examples_by_default, SETTINGS).max_examples
    assert drawn == nightly.examples(50)


def test_children_have_one_thread_of_the_numerical_libraries():
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]]


def test_figures_are_blank_here_and_rendered_where_a_test_says_so(tmp_path):
    from wpriv.results import figure_layout

    (path,) = figure_layout.save(None, tmp_path, ["png"], "figure")
    assert path.read_bytes() == blank_figures.BLANK["png"]


@pytest.mark.figures
def test_the_mark_renders_figures(tmp_path):
    from wpriv.results import figure_layout

    figure = figure_layout.figure_class()()
    (path,) = figure_layout.save(figure, tmp_path, ["png"], "figure")
    assert path.stat().st_size > len(blank_figures.BLANK["png"])


def test_ci_runs_the_line_of_the_readme():
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if "python -m pytest" in line)
    assert line == "pip install -e '.[test]' && python -m pytest -n auto"
    assert "grep -m 1 '^pip install .*&& python -m pytest' README.md" in (ROOT / ".ci" / "run").read_text()
