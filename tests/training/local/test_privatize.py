"""Tests of ``privatize``: the distribution of the reports, clipping, seed, transform, cost, statement and errors."""

from __future__ import annotations

import contextlib
import doctest
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import wpriv
from wpriv.errors import MissingResource, Unsupported, UsageError, WprivError
from wpriv.numerics import conversions
from wpriv.training.local import local_mechanism, local_statement, privatize
from wpriv.training.reports import words

LEVEL = 1e-9  # chance that a test on noise of the operating system fails though the distribution is right
GAUSS = {"mech": "local-gauss", "radius": 1.0, "eps": 2.0, "delta": 1e-5}
LAPLACE = {"mech": "local-laplace", "radius": 1.0, "eps": 2.0}
SIZED = {"local-gauss": ("sigma", {"delta": 1e-5}), "local-laplace": ("scale", {})}


def records(n: int, *shape: int, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(n).normal(scale=spread, size=(n, *shape))


def released(x, **asked) -> np.ndarray:
    return wpriv.privatize(x, dtype="float64", **asked).x


@pytest.mark.parametrize("mech", SIZED)
@pytest.mark.parametrize("seed", [None, 3])
def test_what_is_added_has_the_law_of_the_mechanism(mech, seed):
    name, more = SIZED[mech]
    noisy = released(np.zeros((3000, 40)), mech=mech, radius=2.0, **{name: 0.7}, **more, seed=seed)
    law = stats.norm(scale=0.7) if mech == "local-gauss" else stats.laplace(scale=0.7)
    assert stats.kstest(noisy.ravel(), law.cdf).pvalue > LEVEL
    assert stats.kstest(noisy[:, 0], law.cdf).pvalue > LEVEL


@pytest.mark.parametrize("mech", SIZED)
def test_the_noise_does_not_depend_on_the_records(mech):
    name, more = SIZED[mech]
    asked = {"mech": mech, "radius": 5.0, name: 0.7, "seed": 1, **more}
    x = records(50, 30, spread=0.01)  # inside the ball
    difference = released(x, **asked) - released(np.zeros_like(x), **asked)
    np.testing.assert_allclose(difference, x, rtol=0, atol=5.0 * 2.0**-25)


@pytest.mark.parametrize(("mech", "p"), [("local-gauss", 2), ("local-laplace", 1)])
def test_what_is_published_lies_within_the_diameter_whatever_the_record(mech, p):
    asked = {**(GAUSS if p == 2 else LAPLACE), "mech": mech, "seed": 1}
    x = np.concatenate([records(20, 6) * 10.0**k for k in (-3, 0, 3, 90)] + [np.eye(6) * 1e100])
    moved = released(x, **asked) - released(np.zeros_like(x), **asked)  # both on one grid: exact
    assert (np.sum(np.abs(moved) ** p, axis=1) <= 1.0 + 1e-15).all()
    np.testing.assert_allclose(
        np.linalg.norm(moved[20:], p, axis=1)[np.linalg.norm(x[20:], p, axis=1) > 1.1], 1, atol=1e-6
    )


@pytest.mark.parametrize("mech", SIZED)
def test_published_numbers_lie_on_a_grid_that_does_not_depend_on_the_records(mech):
    asked = {**(GAUSS if mech == "local-gauss" else LAPLACE)}
    done = wpriv.privatize(records(30, 7), dtype="float64", **asked)
    cells = done.x / done.statement["noise"]["grid"]
    assert np.array_equal(cells, np.rint(cells))
    assert not np.signbit(done.x[done.x == 0]).any()


def test_the_same_seed_gives_the_same_bytes_and_the_system_never_does(tmp_path):
    x = records(300, 5)
    for name, seed in (("a", 5), ("b", 5), ("c", 6), ("d", None), ("e", None)):
        wpriv.privatize(x, out=tmp_path / f"{name}.npz", seed=seed, **GAUSS)
    a, b, c, d, e = ((tmp_path / f"{name}.npz").read_bytes() for name in "abcde")
    assert a == b
    assert len({a, c, d, e}) == 4


def test_blocks_do_not_repeat_their_noise(monkeypatch):
    monkeypatch.setattr(privatize, "BLOCK", 64)
    noisy = released(np.zeros((100, 16)), seed=1, **GAUSS)
    assert len(np.unique(noisy)) == noisy.size


def test_progress_is_told_and_the_blocks_are_all_there(monkeypatch):
    monkeypatch.setattr(privatize, "SECONDS", -1.0)
    monkeypatch.setattr(privatize, "BLOCK", 40)
    lines: list[str] = []
    assert wpriv.privatize(records(25, 10), say=lines.append, **GAUSS).x.shape == (25, 10)
    assert lines[:2] == ["4 of 25 records", "8 of 25 records"]
    assert lines[-1] == "25 of 25 records"


def test_the_cosine_transform_is_orthonormal_and_that_of_the_definition():
    x = records(4, 1, 5, 7)
    found = local_mechanism.transformed(x)
    np.testing.assert_allclose(np.linalg.norm(found, axis=(2, 3)), np.linalg.norm(x, axis=(2, 3)), rtol=1e-13)

    def matrix(n):
        k, i = np.mgrid[:n, :n]
        return np.sqrt(2 / n) * np.cos(np.pi * (2 * i + 1) * k / (2 * n)) * np.where(k == 0, math.sqrt(0.5), 1)

    np.testing.assert_allclose(found, matrix(5) @ x @ matrix(7).T, atol=1e-13)
    np.testing.assert_allclose(local_mechanism.transformed(x[:, 0, 0]), x[:, 0, 0] @ matrix(7).T, atol=1e-13)


def test_bounds_come_from_public_records_and_hold_before_the_noise():
    public, x = np.abs(records(2000, 1, 4, 4)), records(500, 1, 4, 4, spread=5.0)
    asked = {"mech": "local-laplace", "eps": 3.0, "dct": True, "quantile": 0.8, "public": public, "seed": 1}
    done = wpriv.privatize(x, dtype="float64", **asked)
    bounds = np.quantile(np.abs(local_mechanism.transformed(public)), 0.8, axis=0)
    assert done.statement["clip"]["radius"] == pytest.approx(bounds.sum(), rel=1e-5)
    assert done.statement["clip"]["radius"] >= bounds.sum()
    moved = done.x - wpriv.privatize(np.zeros_like(x), dtype="float64", **asked).x
    assert (np.abs(moved) <= bounds).all()
    np.testing.assert_allclose(moved, np.clip(local_mechanism.transformed(x), -bounds, bounds), atol=1e-5)
    again = wpriv.privatize(x, dtype="float64", **{**asked, "quantile": None, "public": None}, thresholds=bounds)
    assert np.array_equal(again.x, done.x)


def test_quantiles_of_the_records_themselves_are_the_published_clipping_without_a_guarantee(tmp_path):
    x, asked = records(500, 1, 4, 4), {"mech": "local-laplace", "eps": 3.0, "dct": True, "seed": 1, "dtype": "float64"}
    file = tmp_path / "reports.npz"
    done = wpriv.privatize(x, quantile=0.8, quantile_from="private", **asked)
    wpriv.privatize(x, quantile=0.8, quantile_from="private", out=file, **asked)
    # Section 5.5 of Reshetova et al.: the bounds are the quantiles of the same records, here by numpy
    bounds = np.quantile(np.abs(local_mechanism.transformed(x)), 0.8, axis=0)
    assert np.array_equal(done.x, wpriv.privatize(x, thresholds=bounds, **asked).x)
    assert "NO guarantee" in str(done)
    statement = done.statement
    assert statement["warnings"][0].startswith("NO guarantee")
    assert statement["covered"][0].startswith("nothing")
    assert {entry["publish"] for entry in statement["publish"]} == {"no"}
    assert local_statement.read(statement).best is None
    with pytest.raises(UsageError, match="without a guarantee"):
        wpriv.budget(history=str(file.with_suffix(".statement.json")), eps=1)
    assert "NO guarantee" in " ".join(wpriv.training.data.read("privatized", file=str(file)).notes)


def test_nonnegative_clamps_at_zero_and_spares_gauss_noise_a_root_of_two():
    x = records(50, 3)
    plain, half = (wpriv.privatize(x, nonnegative=flag, dtype="float64", seed=1, **GAUSS) for flag in (False, True))
    ratio = plain.statement["noise"]["sigma"] / half.statement["noise"]["sigma"]
    assert ratio == pytest.approx(math.sqrt(2), rel=1e-5)
    moved = half.x - wpriv.privatize(np.zeros_like(x), nonnegative=True, dtype="float64", seed=1, **GAUSS).x
    assert (moved >= 0).all()


def test_a_center_moves_the_ball_and_the_result_alike():
    x = records(50, 3, spread=0.2) + 7
    asked = {**GAUSS, "seed": 1}
    about = released(x, center=7.0, **asked)
    np.testing.assert_allclose(about, released(x - 7, **asked) + 7, atol=1e-14)
    # the published experiments clip no norms: then the ball is that around the box of pixels, whose diameter is 28 =
    # sqrt(784)
    box = {"mech": "local-gauss", "radius": 14, "center": 0.5, "sigma": 0.1887 * 2, "delta": 1e-4}
    statement = wpriv.privatize(np.zeros((2, 784)), dry_run=True, **box).statement
    assert statement["noise"]["sensitivity"] == 28
    assert statement["clip"]["center"] == 0.5
    assert (
        statement["guarantees"][0]["epsilon"]
        == wpriv.budget("gauss", sigma=0.1887 * 2, sensitivity=28, delta=1e-4).epsilon.safe
        > 2000
    )


def test_bytes_are_divided_by_255_and_a_row_of_single_numbers_is_read():
    x = np.full((3, 2), 51, np.uint8)
    asked = {**GAUSS, "seed": 1}
    np.testing.assert_allclose(released(x, **asked) - released(x * 0, **asked), 0.2, atol=1e-6)
    assert wpriv.privatize(np.arange(4.0), **GAUSS).x.shape == (4, 1)


@pytest.mark.parametrize(
    "asked",
    [
        GAUSS,
        {**GAUSS, "formula": "eq4"},
        {**GAUSS, "nonnegative": True},
        {"mech": "local-gauss", "radius": 3.0, "sigma": 5.0, "delta": 1e-6},
        LAPLACE,
        {**LAPLACE, "delta": 1e-3},
        {"mech": "local-laplace", "radius": 3.0, "scale": 5.0},
        {"mech": "local-laplace", "radius": 3.0, "scale": 5.0, "delta": 1e-3},
    ],
    ids=str,
)
def test_the_statement_says_what_budget_says_of_the_same_mechanism(asked):
    row = wpriv.privatize(records(4, 3), dry_run=True, **asked).statement["guarantees"][0]
    step = {key: value for key, value in row["process"][0].items() if key not in ("n", "sampling")}
    question = {"delta": row["delta"]} if row["delta"] else {"eps": row["epsilon"]}
    found = wpriv.budget(**step, **question, tol=1e-4)
    assert (found.epsilon.safe, found.delta.safe) == (row["epsilon"], row["delta"])
    assert found.claim == row["claim"]
    assert row["adjacency"] == "any-two"
    if "eps" in asked:
        assert row["epsilon"] <= asked["eps"]


def test_eq4_is_that_of_the_paper_at_the_diameter_and_analytic_is_less():
    least, paper = (
        wpriv.privatize(
            records(4, 3), dry_run=True, mech="local-gauss", radius=1, eps=35, delta=1e-4, formula=f
        ).statement["noise"]
        for f in ("analytic", "eq4")
    )
    assert paper["sigma"] == pytest.approx(
        0.37744390352515528, rel=3e-6
    )  # equation (4) in mpmath: .1887 per unit of diameter
    assert least["sigma"] == pytest.approx(2 * conversions.exact(35, 1e-4), rel=2e-5)
    assert least["sigma"] < paper["sigma"]
    assert "equation (4)" in paper["chosen_by"]


def test_files_hold_the_records_and_the_statement_and_no_labels_unless_they_are_public(tmp_path):
    source = tmp_path / "source.npz"
    x, y = records(12, 2, 3), np.arange(12)
    np.savez(source, x=x, y=y)
    done = wpriv.privatize(str(source), out=tmp_path / "new" / "a.npz", **GAUSS)
    with np.load(tmp_path / "new" / "a.npz") as found:
        assert set(found.files) == {
            "x",
            "mechanism",
            "sigma",
            "p",
            "radius",
            "center",
            "epsilon",
            "delta",
            "grid",
            "domain",
            "statement",
        }
        assert (found["x"].shape, found["x"].dtype) == ((12, 2, 3), np.float32)
        assert (str(found["mechanism"]), int(found["p"]), float(found["radius"])) == ("local-gauss", 2, 1.0)
        assert json.loads(str(found["statement"])) == done.statement
    assert json.loads((tmp_path / "new" / "a.statement.json").read_text()) == done.statement
    assert (tmp_path / "new" / "a.statement.md").read_text() == local_statement.to_markdown(done.statement)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.npz", "a.statement.json", "a.statement.md"]
    open_ = wpriv.privatize(str(source), out=tmp_path / "b.npz", public_labels=True, **GAUSS)
    with np.load(tmp_path / "b.npz") as found:
        assert np.array_equal(found["y"], y)
    assert local_statement.LABELS_PUBLIC in open_.statement["not_covered"]


def test_the_statement_says_what_is_protected_and_what_is_not():
    statement = wpriv.privatize(records(8, 3), seed=4, **GAUSS).statement
    told = local_statement.to_markdown(statement)
    for fragment in (
        *("every record by itself", "any-two", "to an l2 norm of 1", "eps = ", "at delta = 1e-5", "post-processing"),
        *("AES-256", "Seed: 4 (fixed)", "seed is fixed", "8 records of 3"),
    ):
        assert fragment in told
    assert statement["schema"] == "wpriv.statement/1"
    quiet = wpriv.privatize(records(8, 3), **LAPLACE).statement
    assert quiet["seed"] is None
    assert "Seed: from the operating system, not recorded" in local_statement.to_markdown(quiet)
    assert "(pure DP)" in words.headline(local_statement.read(quiet))


def test_nothing_in_the_statement_was_computed_from_the_records():
    one, other = (wpriv.privatize(x, seed=1, **GAUSS).statement for x in (records(8, 3), 100 * np.ones((8, 3))))
    assert one == other


def test_a_file_that_is_there_is_not_overwritten_and_an_interruption_leaves_nothing(tmp_path):
    wpriv.privatize(records(5, 2), out=tmp_path / "a.npz", **GAUSS)
    before = (tmp_path / "a.npz").read_bytes()
    with pytest.raises(UsageError, match=r"a\.npz"):
        wpriv.privatize(records(5, 2), out=tmp_path / "a.npz", **GAUSS)
    assert (tmp_path / "a.npz").read_bytes() == before
    (tmp_path / "b.statement.md").write_text("mine")
    with pytest.raises(UsageError, match=r"b\.statement\.md"):
        wpriv.privatize(records(5, 2), out=tmp_path / "b.npz", **GAUSS)

    def stop(line):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privatize, "SECONDS", -1.0)
        with pytest.raises(KeyboardInterrupt):
            wpriv.privatize(records(5, 2), out=tmp_path / "c.npz", say=stop, **GAUSS)
    assert not list(tmp_path.glob("c*"))


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"mech": "local-gaus"}, UsageError, "did you mean 'local-gauss'"),
        ({"mech": None}, UsageError, "mech"),
        ({"mech": ["x"]}, UsageError, "mech"),
        ({"delta": None}, UsageError, "delta"),
        ({"delta": 0.0}, Unsupported, r"delta = 0 \(pure DP\)"),
        ({"eps": None}, UsageError, "eps.*sigma"),
        ({"sigma": 1.0}, UsageError, "eps.*sigma"),
        ({"eps": None, "scale": 1.0}, UsageError, "local-gauss.*sigma"),
        ({"eps": 0.0}, UsageError, "eps.*found 0"),
        ({"eps": "x"}, UsageError, "eps.*'x'"),
        ({"eps": -1.0}, UsageError, "eps.*found -1"),
        ({"radius": 0.0}, UsageError, "radius.*found 0"),
        ({"radius": None}, UsageError, "radius"),
        ({"radius": 1e-40}, UsageError, "radius.*1e-9 and 1e9"),
        ({"eps": None, "sigma": 1e-9}, UsageError, "1e-09"),
        ({"eps": None, "sigma": 1e38, "radius": 1e9}, UsageError, "float32.*float64"),
        ({"dtype": "float16"}, UsageError, "dtype.*'float16'"),
        ({"formula": "paper"}, UsageError, "formula.*'paper'"),
        ({"formula": "eq4", "delta": 0.5}, UsageError, "1/2"),
        ({"formula": "eq4", "eps": None, "sigma": 1.0}, UsageError, "formula.*sigma"),
        ({"dct": True, "nonnegative": True}, UsageError, "nonnegative"),
        ({"dct": True, "center": 0.5}, UsageError, "center.*dct"),
        ({"center": 1e10}, UsageError, "center"),
        ({"quantile": 0.8}, UsageError, "public.*thresholds"),
        ({"public": np.ones((4, 3))}, UsageError, "quantile"),
        ({"quantile_from": "private", "radius": 1}, UsageError, "quantile_from.*give.*quantile"),
        ({"quantile": 0.5, "quantile_from": "privat"}, UsageError, "public or private; found 'privat'"),
        ({"quantile": 0.5, "quantile_from": "private", "public": np.ones((4, 3))}, UsageError, "leave out.*public"),
        ({"public": np.ones((4, 3)), "quantile": 1.5}, UsageError, "quantile.*found 1.5"),
        ({"public": np.ones((4, 2)), "quantile": 0.5}, UsageError, r"public.*\[3\].*\[2\]"),
        ({"thresholds": np.ones(2)}, UsageError, "thresholds.*3 numbers.*found 2"),
        ({"thresholds": -np.ones(3)}, UsageError, "thresholds.*found 3 numbers"),
        ({"thresholds": np.ones(3), "quantile": 0.5}, UsageError, "thresholds.*quantile"),
        ({"seed": -1}, UsageError, "seed.*found -1"),
        ({"limit": 0}, UsageError, "limit.*found 0"),
        ({"public_labels": True}, UsageError, "public-labels"),
        ({"out": "a.npy"}, UsageError, r"out.*'a\.npy'"),
        ({"data": np.array([[1.0, np.nan, 0]])}, MissingResource, "record 0"),
        ({"data": np.array([[0, 0, 0], [1.0, np.inf, 0]])}, MissingResource, "record 1"),
        ({"data": np.array([["a", "b", "c"]])}, MissingResource, "the array: .*found"),
        ({"data": np.zeros((0, 3))}, MissingResource, r"\[0, 3\]"),
        ({"data": np.zeros((3, 0))}, MissingResource, r"\[3, 0\]"),
        ({"data": np.float64(3)}, UsageError, "found float64"),
        ({"data": "nowhere.npz"}, MissingResource, "nowhere.npz"),
        ({"data": "mnits"}, UsageError, "did you mean 'mnist'"),
        ({"data": "mnist:all"}, UsageError, "mnist:train or mnist:test"),
        ({"size": 3, "data": "digits"}, UsageError, "digits.*'size'"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_what_cannot_be_is_refused_in_words(change, error, told):
    asked = {"data": records(5, 3), **GAUSS, **change}
    with pytest.raises(error, match=told):
        wpriv.privatize(asked.pop("data"), **asked)


def test_the_records_to_protect_are_no_public_ones():
    with pytest.raises(UsageError, match="digits:train"):
        wpriv.privatize("digits", mech="local-laplace", eps=1.0, quantile=0.5, public="digits:train")
    assert (
        wpriv.privatize("digits", mech="local-laplace", eps=1.0, quantile=0.5, public="digits:test", dry_run=True).x
        is None
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_pure_eps_and_scale_are_rounded_to_the_safe_side_and_no_further(radius, eps):
    statement = wpriv.privatize(np.zeros((2, 1)), dry_run=True, mech="local-laplace", radius=radius, eps=eps).statement
    scale, row = statement["noise"]["scale"], statement["guarantees"][0]
    assert Fraction(scale) * Fraction(eps) >= 2 * Fraction(radius)
    assert scale <= 2 * radius / eps * (1 + 1.1e-5)
    assert (row["epsilon"], row["delta"]) == (eps, 0.0)
    other = wpriv.privatize(np.zeros((2, 1)), dry_run=True, mech="local-laplace", radius=radius, scale=scale).statement[
        "guarantees"
    ][0]
    assert other["delta"] == 0
    assert Fraction(other["epsilon"]) * Fraction(scale) >= 2 * Fraction(radius)
    assert other["epsilon"] <= eps * (1 + 1.1e-5)


def test_laplace_refuses_what_only_gauss_has():
    for change, told in (
        ({"nonnegative": True}, "nonnegative"),
        ({"formula": "eq4", "delta": 1e-5}, "eq4"),
    ):
        with pytest.raises(UsageError, match=told):
            wpriv.privatize(records(5, 3), **{**LAPLACE, **change})


@pytest.mark.parametrize(
    "target",
    [{"mech": "local-gauss", "eps": 1e-20, "delta": 1e-300}, {"mech": "local-laplace", "eps": 1e-320}],
    ids=str,
)
def test_a_target_out_of_reach_is_unsupported(target):
    with pytest.raises(Unsupported):
        wpriv.privatize(records(5, 3), radius=1.0, **target)


def test_the_example_of_the_docstring_holds():
    found = doctest.testmod(privatize)
    assert found.attempted >= 3
    assert found.failed == 0


ODD = [
    None, "", "x", "\0", [], {}, (1,), True, object(), b"1", 1j, float("nan"), float("inf"), -1, 0, 10**400,
    np.array([1, 2]), np.bool_(True), Path("/"), print,
]  # fmt: skip
ARGUMENTS = (
    *("data", "mech", "eps", "delta", "sigma", "scale", "radius", "center", "formula", "quantile", "quantile_from"),
    *("public", "thresholds", "seed", "dtype", "limit", "array", "root", "out"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("value", ODD, ids=lambda v: repr(v)[:20])
def test_an_odd_argument_is_answered_or_refused_by_wpriv(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = {"data": records(5, 3), **GAUSS, name: value}
    with contextlib.suppress(WprivError):
        wpriv.privatize(asked.pop("data"), **asked)
    assert not list(tmp_path.iterdir())


def test_thresholds_of_bytes_are_divided_by_255_as_the_records_are():
    x = np.full((3, 2), 200, np.uint8)
    options = {"sigma": 1.0, "delta": 1e-5, "seed": 1}
    whole = wpriv.privatize(x, "local-gauss", thresholds=np.array([51, 102], np.uint8), **options)
    scaled = wpriv.privatize(x, "local-gauss", thresholds=np.array([0.2, 0.4]), **options)
    assert np.array_equal(whole.x, scaled.x)
    assert whole.statement["clip"]["radius"] == pytest.approx(np.sqrt(0.2), rel=1e-6)  # of 0.2 and 0.4, by hand
    with pytest.raises(UsageError, match="save the thresholds as float64"):
        wpriv.privatize(x / 255, "local-gauss", thresholds=np.array([51, 102], np.uint8), **options)
