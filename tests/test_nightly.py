"""What the default run leaves out, and that it leaves out nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import blank_figures, nightly, probed_networks, repeated_questions
from tests.points import ROOT
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.pld.composition import Composition
from wpriv.core.subsampled_pairs import poisson
from wpriv.errors import Unsupported
from wpriv.numerics import counted_work
from wpriv.training.clipping import choose_method, clip
from wpriv.training.tasks import fit

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


def asked(run):
    """The answers of a new composition, the work that is left to it, and the work that they took."""
    composition, start = Composition(run), counted_work.total()
    answers = composition.epsilon(1e-5, 1e-3), composition.delta(0.5, 1e-4)
    return answers, composition.work_left, counted_work.total() - start


@pytest.fixture
def evaluated(monkeypatch):
    """The questions that are evaluated, and not answered from memory."""
    questions, real = [], repeated_questions._evaluate
    evaluate = lambda self, question, *given: questions.append(question.__name__) or real(self, question, *given)  # noqa: E731
    monkeypatch.setattr(repeated_questions, "_evaluate", evaluate)
    return questions


@pytest.mark.skipif(nightly.WHOLE, reason="every answer is computed at night")
def test_an_answer_from_memory_has_the_bits_of_a_computed_one_and_counts_its_work(monkeypatch, evaluated):
    run = [(poisson(Gauss(1.0).pair(), 0.125), 5)]
    first = asked(run)
    with monkeypatch.context() as patch:
        patch.setattr(Composition, "_limited", repeated_questions._evaluate)
        computed = asked(run)
    evaluated.clear()
    again = asked(run)
    assert not evaluated
    assert computed[0] == first[0] == again[0]
    assert again[1:] == pytest.approx(first[1:])


@pytest.mark.skipif(nightly.WHOLE, reason="every answer is computed at night")
@pytest.mark.parametrize(
    ("place", "replacement"),
    [
        ("accounting.pld.composition.ordered", lambda bracket: (0.0, 7.0)),
        ("accounting.pld.constants.DISCRETIZATION_SHARE", 0.5),
        ("core.loss_pair.KeyedPair.reverse", lambda pair: pair),
        ("core.subsampled_pairs._Poisson.reverse", lambda pair: pair),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_while_a_part_of_the_engine_is_replaced_answers_are_neither_read_nor_kept(
    monkeypatch, evaluated, place, replacement
):
    run = [(poisson(Gauss(1.0).pair(), 1 / (2 + len(place))), 5)]

    def answers(count):
        evaluated.clear()
        computed = asked(run)[0]
        assert len(evaluated) == count
        return computed

    def change(patch):
        patch.setattr(f"wpriv.{place}", replacement, raising=False)

    with monkeypatch.context() as patch:
        change(patch)
        answers(2)
        answers(2)
    usual = answers(2)
    assert answers(0) == usual
    with monkeypatch.context() as patch:
        change(patch)
        answers(2)
    assert answers(0) == usual


@pytest.mark.skipif(nightly.WHOLE, reason="every answer is computed at night")
@pytest.mark.parametrize("around", [lambda pair: pair, lambda pair: poisson(pair, 0.5)], ids=["alone", "sampled"])
def test_answers_about_a_loss_pair_of_a_test_are_computed(evaluated, around):
    class Own(GaussPair):
        pass

    for _ in range(2):
        Composition([(around(Own(1.0)), 1)]).delta(0.5, 1e-4)
    assert len(evaluated) == 2


@pytest.fixture
def tries(monkeypatch):
    """A function that returns how often the methods of clipping were tried for a network and a loss."""
    counts, real = [], probed_networks._try_methods
    monkeypatch.setattr(probed_networks, "_try_methods", lambda *rest: counts.append(1) or real(*rest))

    def count(layer, loss):
        counts.clear()
        clip.choose(layer, loss, torch.zeros(0, 7), torch.zeros(0, layer.out_features))
        return len(counts)

    return count


@pytest.mark.skipif(nightly.WHOLE, reason="every network is probed at night")
def test_equal_networks_are_probed_once_and_those_of_a_test_or_with_other_settings_each_time(tries, monkeypatch):
    class Own(torch.nn.Linear):
        pass

    squared = fit.loss_of("squared")
    layers = (torch.nn.Linear(7, 5), torch.nn.Linear(7, 5), torch.nn.Linear(7, 6), Own(7, 5), Own(7, 5))
    assert [tries(layer, squared) for layer in layers] == [1, 0, 1, 1, 1]
    assert tries(torch.nn.Linear(7, 5), fit.loss_of("absolute")) == 1
    with monkeypatch.context() as patch:
        patch.setattr(choose_method, "probe", choose_method._Trial)
        with pytest.raises(TypeError):
            tries(torch.nn.Linear(7, 5), squared)
    assert tries(torch.nn.Linear(7, 5), squared) == 0


@pytest.mark.skipif(nightly.WHOLE, reason="every network is probed at night")
def test_a_loss_of_a_test_is_probed_each_time_whatever_its_code(tries):
    def loss(mixes):
        return lambda outputs, targets: ((outputs.mean(0) if mixes else outputs) - targets).square().sum(1)

    assert [tries(torch.nn.Linear(7, 4), loss(mixes=False)) for _ in range(2)] == [1, 1]
    with pytest.raises(Unsupported):
        tries(torch.nn.Linear(7, 4), loss(mixes=True))


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
