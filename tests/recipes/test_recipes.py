"""Every shipped recipe runs with its quick settings and reproduces the published numbers in it."""

from __future__ import annotations

import functools
import json
import re

import pytest

from tests import nightly
from tests.points import ROOT
from wpriv.accounting import load_recipe
from wpriv.accounting.claims import verify_claim
from wpriv.accounting.comparison import compare, grid
from wpriv.cli.main import main
from wpriv.config import recipe_files
from wpriv.config.schema import PROCESS_TABLES
from wpriv.core import registry
from wpriv.numerics import numbers
from wpriv.results import expectations, plot
from wpriv.training import sweep, train, training_run

pytestmark = pytest.mark.slow

RECIPES = ROOT / "recipes"
KEPT = ROOT / "reproductions" / "report.json"  # in the repository, not in the package
EVERY = sorted(RECIPES.rglob("*.yaml"))
# what the first level of a file says, which a test compares with the loaded recipe: loading all takes long
TOP = {path: dict(re.findall(r"^(kind|claims): *(\w*)", path.read_text(encoding="utf-8"), re.M)) for path in EVERY}
FILES = [path for path in EVERY if TOP[path]["kind"] == "compare"]
TRAININGS = [path for path in EVERY if TOP[path]["kind"] == "train"]
VERIFYING = [path for path in EVERY if TOP[path]["kind"] == "verify"]
RELEASES = [path for path in EVERY if TOP[path]["kind"] == "release"]
CLAIMING = [path for path in EVERY if "claims" in TOP[path]]
# no numbers are published for comparison: only pictures, or the data are synthetic
WITHOUT_NUMBERS = {
    "fig1-laplace-loss",
    "fig6-timing",
    "table1-office-caltech",
    "fig3",
    "swae-mnist",
    "swae-fashion-mnist",
    "fig1-wgan",  # the paper prints pictures alone
    "fig3-fig5-quantile",
    "fig7-dcgan",
    "fig13-circle",
    "fashion-mnist-cnn",  # a comparison of this program's own, whose table is in the guide
    "fashion-mnist-features",
    "pretrained",  # the first weights of another recipe
}
# the figures of some recipes are rendered in each run, and those of all at night
DRAWN = [
    pytest.param(path, marks=pytest.mark.figures) if nightly.is_in_shard(number, 4) else path
    for number, path in enumerate(FILES)
]
LARGE_GRIDS = ("fig1-orders", "table4-noise", "linear-rate", "error-over-eps", "eps-over-bins", "error-over-epochs")
# tables with one row for each process; a table of losses has one for each loss
ONE_ROW_TABLES = set(PROCESS_TABLES) - {"loss"}


@functools.cache
def recipe_of(path):
    return load_recipe.read(path)


def test_recipes_are_found():
    assert len(FILES) >= 27
    assert len(TRAININGS) >= 12
    assert len(CLAIMING) >= 8
    assert len(VERIFYING) >= 1
    assert len(RELEASES) >= 2
    assert {path.resolve() for path in EVERY} == {path.resolve() for path in recipe_files.shipped().values()}


@pytest.mark.parametrize("path", nightly.sharded(DRAWN, 6), ids=lambda p: p.stem)
def test_a_quick_recipe_reproduces_its_published_numbers(path, tmp_path, request):
    done = compare.run(load_recipe.read(path, quick=True), tmp_path / "out")
    done.require()
    assert done.verdicts or path.stem in WITHOUT_NUMBERS
    is_drawn = request.node.get_closest_marker("figures") is not None
    assert (tmp_path / "out" / "figure.png").stat().st_size > 5000 * is_drawn
    assert plot.plot(tmp_path / "out", formats=["svg"])[0].is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_first_line_of_a_comparison_is_its_command_with_time_and_memory(path):
    made = recipe_of(path)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    folder = path.parent.name
    assert re.fullmatch(rf"# wpriv compare recipes/{folder}/{path.name} +\(\d+ s, \d+ MB\)", first)
    assert made.source
    for panel in made.panels:
        assert panel.figure in registry.names("figures")


@pytest.mark.parametrize("path", EVERY, ids=lambda p: p.stem)
def test_the_kind_and_the_duration_of_a_recipe_agree_with_its_first_lines(path):
    made = recipe_of(path)
    assert (made.kind, bool(made.claims)) == (TOP[path]["kind"], "claims" in TOP[path])
    first = path.read_text(encoding="utf-8").splitlines()[0]
    if made.kind == "check":
        # which takes a moment
        assert first == f"# wpriv check {path.relative_to(RECIPES).with_suffix('').as_posix()}"
    elif made.kind in ("compare", "verify"):
        assert made.time.seconds == int(re.search(r"\((\d+) s, ", first)[1])
    else:
        assert f"{numbers.duration(made.time.seconds)} of one core" in first
        # also a dry run of its quick settings
        assert load_recipe.read(path, quick=True).time is not None


@pytest.mark.parametrize("path", CLAIMING, ids=lambda p: p.stem)
def test_numbers_quoted_by_claims_are_expected_or_kept(path):
    """Every decimal number in ``found`` is an expected number, the ratio of two of the same panel, or a kept result.

    The expected numbers and kept results are those of the recipe and of recipes of the paper that the claim names.
    """
    made = recipe_of(path)
    quoted = [float(word) for claim in made.claims for word in re.findall(r"(?<![\w.])\d*\.\d+(?!\.\d)", claim.found)]
    words = {word for claim in made.claims for word in re.findall(r"[\w-]+", f"{claim.found} {claim.because}")}
    named = [other for other in path.parent.glob("*.yaml") if other.stem in words and other != path]
    panels: dict[str, list[float]] = {}
    for check in (check for each in (path, *named) for check in recipe_of(each).checks):
        panels.setdefault(check.panel, []).extend(check.columns.values())
    # numbers that identify rows, such as alpha = 0.75, may be quoted as well
    known = [value for check in made.checks for value in check.where.values() if isinstance(value, float)]
    known += [float(word) for word in re.findall(r"\d*\.\d+(?:e-?\d+)?", str(made.data))]
    for values in panels.values():
        known += [*values, *(one / other for one in values for other in values if other)]
    if KEPT.exists():
        kept = json.loads(KEPT.read_text(encoding="utf-8"))["recipes"]
        found = [kept.get(f"{each.parent.name}/{each.stem}", {}) for each in (path, *named)]
        lines = " ".join(line for each in found for line in [*each.get("table", ()), *each.get("runs", ())])
        known += [float(word) for word in re.findall(r"\d*\.\d+(?:e-?\d+)?", lines)]
    for number in quoted:
        assert any(abs(number - value) <= 3e-3 * abs(value) + 5e-4 for value in known), number


@pytest.mark.nightly
@pytest.mark.parametrize("path", VERIFYING, ids=lambda p: p.stem)
def test_every_published_claim_has_a_source_and_the_expected_verdict(path):
    made = recipe_of(path)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(rf"# wpriv verify recipes/{path.parent.name}/{path.name} +\(\d+ s, \d+ MB\)", first)
    rows = verify_claim.decide_published(made, simulated=False)
    assert len(rows) >= 15
    assert {row.verdict for row in rows} == {"proved", "refuted", "open"}
    assert all(row.expected and row.source for row in rows)
    verify_claim.require_expected(path, rows)


def _by_size(path):
    """A recipe; those whose whole grid takes longer than all others together are for the night."""
    return pytest.param(path, marks=pytest.mark.nightly) if path.stem in LARGE_GRIDS else path


def may_hold(cell, where):
    given = {**cell.specs[0], **cell.labels}
    return all(expectations.is_same(given[k], v) for k, v in where.items() if k in given)


@pytest.mark.parametrize("path", [_by_size(path) for path in FILES], ids=lambda p: p.stem)
def test_each_published_number_names_one_row_of_the_full_grid(path):
    made = recipe_of(path)
    cells = grid.cells(made)
    rows = [
        {**c.specs[0], **c.labels, "accountant": c.accountant, "epsilon": c.eps, "delta": c.delta}
        for c in cells
        if c.table in ONE_ROW_TABLES
    ]
    computed_rows: dict[int, list[dict]] = {}  # of cells of other tables, by their place
    for check in made.checks:
        where = check.where
        computed = []
        for place, c in enumerate(cells):
            if c.table not in ONE_ROW_TABLES and c.labels.get("panel", "") == check.panel and may_hold(c, where):
                if place not in computed_rows:
                    computed_rows[place] = compare.compute(c, {})
                computed += computed_rows[place]
        candidates = [row for row in rows + computed if row.get("panel", "") == check.panel]
        hits = [row for row in candidates if all(expectations.is_same(row.get(k), v) for k, v in where.items())]
        assert len(hits) == 1, f"{check.where} names {len(hits)} rows"


@pytest.mark.parametrize("path", nightly.sharded(TRAININGS, 2), ids=lambda p: p.stem)
def test_a_training_recipe_has_its_command_expectations_and_a_plan_without_data(path, tmp_path):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(rf"# wpriv train recipes/{path.parent.name}/{path.name}( --device cuda)? +\(.+\)", first)
    made = recipe_of(path)
    assert made.checks or path.stem in WITHOUT_NUMBERS
    cells = [cell.recipe for cell in sweep.cells(made)] if made.training.sweep else [made]
    # the first private cell of a sweep, or the first; planned if the recipe states the number of records
    cell = next((cell for cell in cells if cell.training.privacy is not None), cells[0])
    if cell.training.data.records is not None:
        plan, _ = training_run.planned(cell, tmp_path)
        target = cell.training.privacy
        assert target is None or target.eps is None or plan.eps() <= target.eps
        assert plan.epoch_ends[-1] == plan.steps
    quick = load_recipe.read(path, quick=True)
    assert not quick.checks or quick.data.get("expect")


def test_the_quick_digits_recipe_trains_to_its_expected_accuracy(tmp_path):
    done = train.train(RECIPES / "quick" / "digits.yaml", out=tmp_path / "out")
    done.require()
    assert done.verdicts
    assert done.guarantees[0].epsilon.safe <= 3
    assert plot.plot(tmp_path / "out", formats=["svg"])[0].is_file()


@pytest.mark.slow
@pytest.mark.parametrize("path", RELEASES, ids=lambda p: p.stem)
def test_a_release_recipe_releases_and_its_folder_is_the_same_recipe(path, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["release", str(path), "--out", str(out), "--csv"]) == 0
    first = capsys.readouterr().out
    assert len(first.splitlines()) > 4
    assert main(["release", str(out / "recipe.yaml"), "--out", str(out), "--csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out == first
    assert "nothing was spent" in printed.err
