"""What the default run leaves out, and that it leaves out nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import blank_figures, nightly, repeated_questions
from tests.points import ROOT
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.pld.composition import Composition
from wpriv.core.subsampled_pairs import poisson
from wpriv.numerics import counted_work
from wpriv.training.clipping import choose_method, clip

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


@pytest.mark.skipif(nightly.WHOLE, reason="every answer is computed at night")
def test_an_answer_from_memory_has_the_bits_of_a_computed_one_and_counts_its_work(monkeypatch):
    run = [(poisson(Gauss(1.0).pair(), 0.125), 5)]

    def answers():
        asked, start = Composition(run), counted_work.total()
        return asked.epsilon(1e-5, 1e-3), asked.delta(0.5, 1e-4), asked.work_left, counted_work.total() - start

    first = answers()
    with monkeypatch.context() as patch:
        patch.setattr(Composition, "_limited", repeated_questions._evaluate)
        computed = answers()
    for name in ("_bracket_epsilon", "_bracket_delta"):

        def computes(*question):
            pytest.fail("an answer is computed again")

        computes.__name__ = name
        monkeypatch.setattr(Composition, name, computes)
    again = answers()
    assert computed[:2] == first[:2] == again[:2]
    assert again[2:] == pytest.approx(first[2:])


@pytest.mark.skipif(nightly.WHOLE, reason="every network is probed at night")
def test_equal_networks_are_probed_once_and_those_of_a_test_or_with_other_settings_each_time(monkeypatch):
    class Own(torch.nn.Linear):
        pass

    def squared(outputs, targets):
        return (outputs - targets).square().sum(1)

    probed, real = [], choose_method.probe
    monkeypatch.setattr(choose_method, "probe", lambda *rest, **more: probed.append(1) or real(*rest, **more))
    counts = []
    for layer in (torch.nn.Linear(7, 5), torch.nn.Linear(7, 5), torch.nn.Linear(7, 6), Own(7, 5), Own(7, 5)):
        clip.choose(layer, squared, torch.zeros(0, 7), torch.zeros(0, layer.out_features))
        counts.append(len(probed))
        probed.clear()
    assert counts == [2, 0, 2, 2, 2]


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
