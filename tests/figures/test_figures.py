"""Every figure draws a table that suits it: axes, legends, line styles of claims, gaps and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

import wpriv
from wpriv.cli.main import main
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.figures import _draw
from wpriv.results import plot, storage
from wpriv.training import tasks

GAUSS = {"mech": "gauss", "sigma": 2, "sampling": "poisson", "rate": 0.1, "n": 16}
EPS, N = {"over": "eps", "values": [0, 0.5, 1]}, {"over": "n", "values": [1, 16, 256]}
BOUNDS = {"process": [GAUSS], "accountants": ["pld", "rdp", "clt"]}
TABLES = {
    "curves": {**BOUNDS, "delta": 1e-5, "sweep": {"over": "sigma", "values": [1, 2, 4]}},
    "delta-over-eps": {**BOUNDS, "sweep": EPS},
    "eps-over-n": {**BOUNDS, "delta": 1e-5, "sweep": N},
    "delta-over-n": {**BOUNDS, "eps": 1, "sweep": N},
    "loss-law": {"process": [{"mech": "laplace", "scale": 1, "n": 2}], "table": "loss", "bins": 50},
    "trade-off": {
        "process": [GAUSS],
        "table": "trade-off",
        "sweep": {"over": "fpr", "values": [0.001, 0.01, 0.1, 0.5, 1]},
    },
    "loss-class": {
        "cases": {"a": [GAUSS], "b": [GAUSS]},
        "table": "class",
        "sweep": {"over": "sensitivity", "values": [1, 2]},
    },
    "adp-pdp": {"process": [{"mech": "truncated-gauss", "sigma": 1, "bound": 2.5}], "accountants": ["pld"], "eps": 0.3},
    "claims": {"table": "claims"},
    "sliced-distance": {
        "table": "sliced-distance",
        "params": {"records": 20},
        "sweep": {"over": "c", "values": [0, 1]},
    },
    "sensitivity": {
        "table": "wgrad-sensitivity",
        "params": {"bound": 1, "lipschitz_x": 1, "lipschitz_z": 1, "size_x": 100, "size_z": 100, "clip": 5},
        "sweep": {"over": "alpha", "values": [0, 0.5, 1]},
    },
    "limit-error": {
        "table": "limit-error",
        "params": {"rate": 0.1, "steps": 50, "delta": 1e-5},
        "sweep": {"over": "target", "values": [0.5, 1]},
    },
    "wp-gradient": {"table": "wp-gradient", "params": {"order": 2}, "sweep": {"over": "records", "values": [10, 100]}},
    "sigma-over-eps": {
        "table": "gauss-formulas",
        "params": {"delta": 1e-4},
        "sweep": {"over": "target", "values": [0.5, 2, 35, 40]},
    },
    "sigma-ratio": {
        "table": "gauss-formulas",
        "params": {"delta": 1e-4},
        "sweep": {"over": "target", "values": [0.5, 2, 35, 40]},
    },
    "linear-generator": {
        "table": "linear-generator",
        "params": {"batch": 20},
        "sweep": {"over": "lam", "values": [1, 2]},
    },
    "error-over-records": {
        "table": "linear-rate",
        "params": {"draws": 2, "noise": "gauss"},
        "sweep": {"over": "records", "values": [20, 50]},
    },
    "uniform-outputs": {"table": "uniform-outputs", "params": {"outcomes": 4, "least": -2}},
    "attack-chances": {"table": "attack-chances"},
    "correlated-noise": {
        "table": "correlated-noise",
        "params": {"bins": 20, "epochs": 2, "sampling": "none poisson", "strategies": "banded:2 blt:2"},
        "sweep": {"over": "eps", "values": [1, 4]},
    },
    "projection-noise": {"table": "projection-noise", "params": {"first": 1}},
    "projection-law": {"table": "projection-law", "params": {"d": 50, "k": 40, "draws": 500, "bins": 20}},
    "table": {
        "cases": {"a": [{"mech": "gauss", "sigma": 1}], "b": [{"mech": "laplace", "scale": 1}]},
        "accountants": ["pld", "renyi"],
        "delta": 1e-5,
    },
    "budgets": {
        "cases": {"a": [{"mech": "gauss", "sigma": 1}], "b": [{"mech": "laplace", "scale": 1}]},
        "accountants": ["pld", "renyi", "wdp:variant=exact", "gdp"],
        "delta": 1e-5,
    },
}
NAMES = {"pld": "privacy loss distribution", "rdp": "Rényi DP", "clt": "central limit"}
# figures of the metrics of a training or a sweep, or of files that several tasks write
TRAINED = {
    "accuracy-over-eps",
    "audit",
    "distance",
    "losses",
    "measures",
    "noise",
    "odds",
    "parity",
    "release-noise",  # of a release's folder
    "samples",
    "training",
}


def drawn(name: str, rows=None):
    axes = Figure().subplots()
    registry.load("figures", name).draw(wpriv.compare(**TABLES[name]).rows if rows is None else rows, axes)
    return axes


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_every_figure_there_is_has_a_table_here():
    # what trainings and their tasks draw is no comparison's: it has tests of its own
    specs = [tasks.load(name) for name in registry.names("tasks")]
    trained = {*TRAINED, *(figure for spec in specs for figure in spec.figures.values())}
    assert set(registry.names("figures")) == {*TABLES, *trained}
    assert len(TABLES) >= 18


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"table"}))
def test_a_figure_labels_its_axes_and_has_a_legend(name):
    axes = drawn(name)
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert entries(axes)
    axes.figure.canvas.draw()


@pytest.mark.slow
def test_delta_is_on_a_logarithmic_axis_and_n_on_a_binary_one():
    assert drawn("delta-over-eps").get_yscale() == "log"
    axes = drawn("eps-over-n")
    assert axes.get_xscale() == "log"
    assert axes.xaxis.get_transform().base == 2


def test_the_legend_follows_the_order_of_the_right_ends():
    rows = wpriv.compare(**TABLES["delta-over-eps"]).rows
    last = {NAMES[row["accountant"]]: row["delta"] for row in rows if row["epsilon"] == 1}
    expected = sorted(last, key=lambda name: -last[name])
    assert [entry.split(" (")[0] for entry in entries(drawn("delta-over-eps", rows))] == expected


def test_labels_name_claims_approximate_ones_are_dashed_and_brackets_are_bands():
    axes = drawn("delta-over-eps")
    lines = dict(zip(entries(axes), axes.get_legend().legend_handles, strict=True))
    dashed = {name: line.get_linestyle() == "--" for name, line in lines.items()}
    assert dashed == {
        "privacy loss distribution (certified)": False,
        "Rényi DP (upper bound)": False,
        "central limit (approximate)": True,
    }
    assert len(axes.collections) == 1  # the band of pld; an upper bound has no lower end


def test_a_series_of_zeros_or_without_answers_has_a_legend_entry_but_no_curve():
    sweep = {"over": "eps", "values": [1, 2]}
    rows = wpriv.compare(process=[{"mech": "laplace", "scale": 1}], accountants=["pld", "gdp"], sweep=sweep).rows
    gauss = wpriv.compare(process=[{"mech": "gauss", "sigma": 1}], accountants=["pld"], sweep=sweep).rows
    rows = [{**r, "case": "laplace"} for r in rows] + [{**r, "case": "gauss"} for r in gauss]
    assert entries(drawn("delta-over-eps", rows)) == [
        "Gauss, privacy loss distribution (exact)",
        "Laplace, privacy loss distribution (0 throughout)",
        "Laplace, Gaussian DP (no answer)",
    ]


def test_infinite_and_missing_values_leave_gaps_rather_than_errors():
    common = {"accountant": "pld", "claim": "certified", "given": "epsilon"}
    rows = [{**common, "epsilon": x, "delta": y} for x, y in ((0, 0.5), (1, None), (2, 0.1), (3, math.inf))]
    (line,) = drawn("delta-over-eps", rows).get_lines()
    assert list(line.get_xdata()) == [0, 2]


def test_several_notions_on_one_axis_have_a_note_on_their_units():
    assert "no common unit" in " ".join(drawn("budgets").get_xlabel().split())
    assert "no common unit" not in drawn("delta-over-eps").get_xlabel()
    process = [{"mech": "gauss", "sigma": 1}]
    rows = wpriv.compare(process=process, accountants=["renyi", "wdp:variant=exact"], delta=1e-5, sweep=N).rows
    assert "Rényi DP, Wasserstein DP: no common unit" in " ".join(drawn("eps-over-n", rows).get_xlabel().split())


def test_a_second_sweep_of_delta_separates_curves():
    sweep = [{"over": "beta", "values": [1, 2, 5, 9]}, {"over": "delta", "values": [1e-3, 1e-6]}]
    rows = wpriv.compare(process=[{"mech": "gauss", "sigma": 1}], accountants=["wdp:variant=table1"], sweep=sweep).rows
    axes = drawn("curves", rows)
    assert axes.get_xlabel() == "β"
    assert [entry.split(" (")[0] for entry in entries(axes)] == ["δ = 10⁻⁶", "δ = 0.001"]


def test_a_label_omits_a_parameter_that_its_case_implies():
    cases = {"b = 1": [{"mech": "laplace", "scale": 1}], "b = 2": [{"mech": "laplace", "scale": 2}]}
    sweep = {"over": "order", "values": [1, 2, 3]}
    rows = wpriv.compare(cases=cases, accountants=["renyi"], delta=1e-5, sweep=sweep).rows
    assert entries(drawn("curves", rows)) == ["b = 1 (Rényi DP, exact)", "b = 2 (Rényi DP, exact)"]


def test_curves_of_a_table_without_claims_are_labelled_by_their_cases_alone():
    rows = [
        {"case": case, "epsilon": eps, "delta": 0.1 / (1 + eps)} for case in ("ours", "theirs") for eps in (0.0, 1.0)
    ]
    assert sorted(entries(drawn("delta-over-eps", rows))) == ["ours", "theirs"]


def test_a_line_changes_its_style_where_its_claim_changes_without_a_gap():
    proven, beyond = [
        line for line in drawn("sigma-ratio").get_lines() if line.get_color() == "#D55E00" and line.get_xdata().size > 1
    ]
    assert (list(proven.get_xdata()), list(beyond.get_xdata())) == ([0.5, 0.5], [0.5, 2, 35, 40])
    assert proven.get_linestyle() != beyond.get_linestyle()


def test_wp_gradient_draws_slopes_if_the_shift_is_swept():
    recipe = {
        "table": "wp-gradient",
        "params": {"order": 1, "records": 5},
        "sweep": {"over": "theta", "values": [-0.2, 0, 0.2]},
    }
    axes = drawn("wp-gradient", wpriv.compare(**recipe).rows)
    assert entries(axes) == ["$x_i = i/n$: slope +1 at θ = 0", "one record replaced: slope -1 at θ = 0"]


def test_training_draws_test_measures_and_eps_but_nothing_of_training_records():
    rows = [
        {
            "epoch": e,
            "step": 3 * e,
            "loss": 1 / e,
            "clipped": 0.5,
            "accuracy": 0.2 * e,
            "epsilon": 0.3 * e,
            "seconds": e,
        }
        for e in (1, 2, 3)
    ]
    axes = drawn("training", rows)
    assert entries(axes) == ["accuracy", "ε so far (right)"]
    assert list(axes.lines[0].get_ydata()) == [0.2, 0.4, pytest.approx(0.6)]
    bare = drawn("training", [{key: row[key] for key in ("epoch", "step", "accuracy")} for row in rows])
    assert len(bare.figure.axes) == 1
    with pytest.raises(KeyError):
        drawn("training", [{"epoch": 1, "step": 1, "loss": 2.0}])


def test_measures_share_a_logarithmic_axis_and_omit_zeros():
    rows = [
        {"epoch": e, "step": e, "loss": -1.0, "w2": 7.0 / e, "entropy": 0.0 if e == 1 else 2.0, "seconds": 1}
        for e in (1, 2, 3)
    ]
    axes = drawn("measures", rows)
    assert axes.get_yscale() == "log"
    assert entries(axes) == ["W₂ to test records", "entropy"]
    assert list(axes.lines[1].get_ydata()) == [2.0, 2.0]
    with pytest.raises(KeyError):
        drawn("measures", [{"epoch": 1, "step": 1, "loss": 2.0}])


def test_samples_draws_a_grid_of_images_or_points_beside_their_target():
    rng = np.random.default_rng(0)
    axes = drawn("samples", {"samples": rng.uniform(size=(12, 1, 5, 4)), "names": np.array(["real", "made"])})
    assert axes.images[0].get_array().shape == (2 * 6 - 1, 6 * 5 - 1)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["real", "made"]
    assert drawn("samples", {"samples": rng.uniform(size=(7, 3, 5, 5))}).images[0].get_array().shape == (17, 17, 3)
    assert entries(drawn("samples", {"samples": rng.normal(size=(9, 2)), "target": rng.normal(size=(5, 2))})) == [
        "target",
        "generated",
    ]
    for wrong in ({"samples": np.zeros((3, 4))}, {"samples": np.zeros((3, 1, 2, 2)), "names": np.array(["a", "b"])}):
        with pytest.raises(ValueError, match=r"\[3, 4\]|3 images"):
            drawn("samples", wrong)


def test_accuracy_over_eps_has_a_line_for_each_method_and_level_lines_without_privacy():
    rows = [{"method": "a", "privacy.eps": eps, "accuracy": eps / 10, "transductive": 0.5} for eps in (5, 1)]
    axes = drawn("accuracy-over-eps", [*rows, {"method": "plain", "accuracy": 0.9}])
    assert entries(axes) == ["a, held out", "a, adapted to", "plain, held out, without privacy (ε = ∞)"]
    assert list(axes.lines[0].get_xdata()) == [1, 5]
    assert list(axes.lines[0].get_ydata()) == [0.1, 0.5]
    with pytest.raises(KeyError):
        drawn("accuracy-over-eps", [{"method": "a", "loss": 1.0}])
    sweep = drawn("accuracy-over-eps", [{"privacy.eps": eps, "accuracy": 0.9} for eps in (math.inf, 4.0, 1.0)])
    assert entries(sweep) == ["held out", "held out, without privacy (ε = ∞)"]


def test_a_training_with_given_noise_is_drawn_at_its_certified_eps_beside_one_with_a_target():
    rows = [
        {"method": "a", "privacy.eps": 2.0, "epsilon": 1.999, "accuracy": 0.5},
        {"method": "b", "privacy.eps": None, "epsilon": 4.2, "accuracy": 0.6},
    ]
    axes = drawn("accuracy-over-eps", rows)
    assert entries(axes) == ["a, held out", "b, held out"]
    assert [list(line.get_xdata()) for line in axes.lines] == [[2.0], [4.2]]


def test_a_measure_that_is_0_throughout_is_drawn():
    rows = [{"options.alpha": alpha, "accuracy": 0.5, "odds_gap": 0.0} for alpha in (0.0, 1.0)]
    axes = drawn("odds", rows)
    assert entries(axes) == ["accuracy", "odds gap"]


def test_mu_in_the_legend_of_a_trade_off_is_rounded_up():
    ends = {f"{rate}_{end}": 0.5 for rate in ("fnr", "tpr") for end in ("lower", "upper")}
    axes = drawn("trade-off", [{"fpr": fpr, "mu_upper": 12.341001, **ends} for fpr in (0.1, 0.9)])
    assert any("μ = 12.35" in label for label in entries(axes))


def test_a_privacy_curve_is_drawn_as_delta_over_eps(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["budget", "--mech", "gauss", "--sigma", "4", "--eps", "3", "--curve", "--csv"]) == 0
    (tmp_path / "curve.csv").write_text(capsys.readouterr().out)
    rows = storage.table(tmp_path / "curve.csv")
    assert _draw.axis_of(rows) == ("epsilon", "delta")
    assert _draw.axis_of(rows[::10][:2] + rows[35:]) == ("delta", "epsilon")  # uneven: eps is the answer


def test_a_figure_whose_legend_leaves_no_room_is_refused(tmp_path):
    rows = [
        {"accountant": "pld", "n": 1, "epsilon": 0.1 * k, "delta": 0.1, "given": "delta", "sigma": k} for k in range(90)
    ]
    with pytest.raises(UsageError, match="--figure"):
        plot.draw(rows, [plot.View(figure="eps-over-n")], tmp_path, ("png",))


def test_claims_outside_the_axis_are_arrows_and_many_claims_make_a_larger_figure():
    row = {"verdict": "fails", "published": 1.0, "exact": 1.0, "proposition": "Theorem 1", "at": "n=1"}
    rows = [{**row, "ratio": ratio} for ratio in (-2.0, 0.0, 0.5, 1e6, None)]
    axes = drawn("claims", rows)
    marks = [line.get_marker() for line in axes.lines if line.get_marker() not in ("None", "", None)]
    assert marks[:4] == ["<", "<", "X", ">"]
    before = axes.figure.get_size_inches()
    after = drawn("claims", [{**row, "ratio": 1.0, "at": 200 * "a"}] * 60).figure.get_size_inches()
    assert all(after > before)


def test_a_distribution_with_densities_and_a_mass_at_infinity_has_all_of_them_in_its_legend():
    cells = [
        {"part": "finite", "loss": loss, "width": 0.5, "mass": 0.25, "density": 0.5, "class_density": 0.4}
        for loss in (0.0, 0.5)
    ]
    axes = Figure().subplots()
    registry.load("figures", "loss-law").draw([*cells, {"part": "infinity", "loss": math.inf, "mass": 0.5}], axes)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    expected = ["privacy loss distribution", "normal distribution of its class", "distinguishing events (loss ∞)"]
    assert labels == expected
    place = next(text for text in axes.texts if text.get_text() == "0.5").xy
    assert axes.get_ylim()[0] <= place[1] <= axes.get_ylim()[1]


def test_the_deltas_in_the_legend_of_two_densities_are_rounded_up():
    row = {"sigma": 1.0, "sensitivity": 1.0, "epsilon": 0.3, "bound": None}
    axes = drawn(
        "adp-pdp", [{**row, "accountant": "pld", "delta": 0.12341}, {**row, "accountant": "pdp", "delta": 0.5}]
    )
    assert [label.rpartition(" = ")[2] for label in entries(axes)[3:]] == ["0.5", "0.1235"]
