"""Releases by recipes and flags: faults with their places, the same release both ways, and what stands beside it."""

from __future__ import annotations

import csv
import datetime
import json
import math
import shutil
from dataclasses import replace

import pytest
import yaml

from tests.command_line import call
from tests.points import ROOT
from wpriv import BinCounts, Count, Mean, Quantile, Sum, budget, release
from wpriv.accounting import ledger
from wpriv.errors import CheckFailed, UsageError
from wpriv.releases import declaration, tables
from wpriv.releases import plan as planning
from wpriv.releases.plan import asked, checked
from wpriv.releases.sampling import Noise
from wpriv.releases.tables import Query
from wpriv.results.plot import plot

TABLE = "patient,ward,days,admitted\np1,A,3,2026-01-03\np1,B,5,2026-02-01\np2,A,9,\n"
RECIPE = """kind: release
source: ward report
data: {file: stays.csv, types: {days: integer}}
person: patient
limits: {max_groups: 2, max_rows: 3}
by: {column: ward, keys: [A, B, C]}
outputs: [{count: persons}, {sum: days, bounds: [0, 60], weight: 2}]
eps: 1
delta: 0
"""
FLAGS = [
    *("--person", "patient", "--by", "ward", "--keys", "A,B,C", "--max-groups", "2", "--max-rows", "3"),
    *("--count", "persons", "--sum", "days", "--types", "days=integer", "--bounds", "days=0:60", "--weight", "sum=2"),
    *("--eps", "1", "--delta", "0"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stays.csv").write_text(TABLE)
    (tmp_path / "ward.yaml").write_text(RECIPE)
    return tmp_path


def test_a_recipe_releases_what_its_flags_release(folder, capfd):
    by_flags = call(capfd, "release", "--data", "stays.csv", *FLAGS, "--dry-run", "--json")
    by_recipe = call(capfd, "release", "ward.yaml", "--dry-run", "--json")
    assert by_recipe == by_flags
    assert by_recipe[0] == 0


def test_the_recipe_in_a_folder_is_that_release(folder, capfd):
    code, first, _ = call(capfd, "release", "--data", "stays.csv", *FLAGS, "--out", "deep/report", "--json")
    assert code == 0
    (folder / "stays.csv").unlink()  # the stored answer is shown without the data
    for words in (["deep/report/recipe.yaml"], ["ward.yaml"], ["--data", "stays.csv", *FLAGS]):
        code, again, err = call(capfd, "release", *words, "--out", "deep/report", "--json")
        assert (code, again) == (0, first)
        assert "nothing was spent" in err
    written = yaml.safe_load((folder / "deep/report/recipe.yaml").read_text())
    assert written["data"]["file"] == "../../stays.csv"
    assert call(capfd, "recipe", "check", "deep/report/recipe.yaml")[0] == 0


EVERY = (
    Count("rows", weight=2, overall=True),
    Sum("days", "-0.5", ".1e2", "2^-3"),
    Mean("days", 0, 60, whole=False),
    Mean("admitted", datetime.date(2026, 1, 1), "2026-12-31", dates=True),
    Quantile("days", 0, 60, at=["0.25", 0.5]),
    BinCounts("days", (0, 7.5, "30"), of="persons", outside="bins"),
)


def test_every_output_is_read_back_from_its_recipe(folder):
    about = {"by": "ward", "keys": ["A", "B"], "other": "rest", "normalise": ["nfc", "strip"], "null": ["NA"]}
    question = asked(
        person="patient", outputs=EVERY, eps=1, delta="1e-6", max_groups=2, max_rows=3, distinct=True, seed=0,
        nonnegative=True, records=5000, noise="laplace", **about,
    )  # fmt: skip
    data = {"file": str(folder / "stays.csv")}
    recipe = question.describe(data)
    (folder / "all.yaml").write_text(yaml.safe_dump(recipe))
    files, keywords = declaration.of_recipe("all.yaml")
    assert files == [data["file"]]
    assert asked(**keywords).describe(data) == recipe


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("max_groups: 2", "max_group: 2", "5:10", "did you mean 'max_groups'?"),
        ("max_groups: 2, ", "", "5:1", "Noise grows with its square root"),
        (", max_rows: 3", "", "5:1", "Noise grows in proportion to it"),
        ("persons", "person", "7:19", "did you mean 'persons'?"),
        ("bounds: [0, 60]", "edges: [0, 60]", "7:29", "sum needs bounds"),
        ("bounds: [0, 60]", "bounds: [60, 0]", "7:29", "bounds are LO:HI with LO <= HI"),
        ("bounds: [0, 60]", "bounds: [0, many]", "7:29", "must be a decimal number"),
        ("integer", "integr", "3:39", "did you mean 'integer'?"),
        ("integer", "text", "7:29", "days is text; give types days=number"),
        ("{count: persons}", "{count: persons, mean: days}", "7:11", "found count and mean"),
        ("eps: 1", "eps: 1\nse: 3", "1:1", "either eps or se"),
        ("eps: 1\n", "", "1:1", "'eps' is missing"),
        ("file: stays.csv", "name: the table", None, "call wpriv.release with that table"),
    ],
)
def test_a_fault_of_a_recipe_has_its_place(folder, capfd, old, new, place, words):
    assert old in RECIPE
    (folder / "ward.yaml").write_text(RECIPE.replace(old, new, 1))
    code, _, err = call(capfd, "release", "ward.yaml", "--dry-run")
    assert code == 2
    assert place is None or f"ward.yaml:{place}:" in err
    assert words in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "ward.yaml"], "Run it with `wpriv release ward.yaml`"),
        (["release", "ward.yaml", "--eps", "2", "--out", "x"], "leave out --eps"),
        (["release", "ward.yaml", "--weight", "sum=2", "--out", "x"], "leave out --weight"),
        (["release", "ward.yaml", "--data", "stays.csv", "--out", "x"], "names its data"),
        (["release", "ward.yaml"], "give --out DIR"),
        (["release", "ward.yaml", "--dry-run", "--quiet"], "a single output"),
        (["release", "--person", "patient"], "release needs --data"),
    ],
)
def test_what_contradicts_a_recipe_is_refused(folder, capfd, words, message):
    code, _, err = call(capfd, *words)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--se", "1", "--se", "2"], "--se is given twice"),
        (["--eps", "1", "--weight", "persons"], "--weight is written as in mean=2"),
        (["--eps", "1", "--weight", "person=2"], "did you mean 'persons'?"),
        (["--eps", "1", "--overall"], "it needs --by"),
        (["--eps", "1", "--types", "day=number"], "--types: no column called 'day'; did you mean 'days'?"),
        (["--eps", "1", "--grid", "days=.01"], "--grid of days: no sum, mean or quantile is of this column"),
        (["--eps", "1", "--histogram-of", "rows"], "--histogram-of is about a histogram"),
        (["--eps", "1", "--outside", "clip"], "--outside is about a histogram"),
        (["--eps", "1", "--max-eps", "0"], "--max-eps must be above 0"),
        (["--eps", "1", "--expect", "0"], "--expect is a number above 0"),
        (["--eps", "1", "--total"], "give --ledger as a file"),
        ([], "give --eps of the whole release, or --se"),
    ],
)
def test_a_flag_that_means_nothing_is_refused(folder, capfd, words, message):
    about = ["--data", "stays.csv", "--person", "patient", "--count", "persons", "--delta", "0", "--dry-run"]
    code, out, err = call(capfd, "release", *about, *words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.parametrize("words", [["ward.yaml"], ["--data", "stays.csv", *FLAGS, "--types", "admited=date"]])
def test_a_type_of_no_column_is_refused_before_anything_is_spent(folder, capfd, words):
    (folder / "ward.yaml").write_text(RECIPE.replace("{days: integer}", "{days: integer, admited: date}"))
    code, out, err = call(capfd, "release", *words, "--out", "report")
    assert (code, out) == (2, "")
    assert "no column called 'admited'; did you mean 'admitted'?" in err
    assert not (folder / "report").exists()
    right = [word.replace("admited", "admitted") for word in words]
    (folder / "ward.yaml").write_text(RECIPE.replace("{days: integer}", "{days: integer, admitted: date}"))
    assert call(capfd, "release", *right, "--dry-run")[0] == 0, "a column of no output may have a type"


def test_a_recipe_without_a_file_takes_that_of_data(folder, capfd):
    (folder / "ward.yaml").write_text(RECIPE.replace("file: stays.csv, ", ""))
    assert call(capfd, "release", "ward.yaml", "--data", "stays.csv", "--dry-run")[0] == 0
    code, _, err = call(capfd, "release", "ward.yaml", "--dry-run")
    assert code == 2
    assert "needs --data" in err


# standard errors, and ledgers


ABOUT = {"person": "patient", "dry_run": True}


def test_a_standard_error_fixes_the_noise(folder):
    (row,) = release("stays.csv", outputs=[Count()], delta=1e-6, se=10, **ABOUT).rows
    assert row["noise"] == {"mech": "discrete-gauss", "sigma": 10.0, "sensitivity": 1}
    assert row["standard_error"] == 10
    stated = release("stays.csv", outputs=[Count()], delta=1e-6, se=10, **ABOUT).guarantee
    assert stated.epsilon.safe == pytest.approx(
        budget(mech="discrete-gauss", sigma=10, sensitivity=1, delta=1e-6).epsilon.safe, rel=1e-6
    )
    pure = release("stays.csv", outputs=[Count(se=10), Sum("days", 0, 60, se=100)], delta=0, max_rows=1, **ABOUT)
    assert [row["standard_error"] for row in pure.rows] == [10, 100]  # sqrt(2 r) / (1 - r), r = e^(-1/b)
    scales = [row["noise"]["scale"] for row in pure.rows]
    assert pure.guarantee.epsilon.safe == pytest.approx(1 / scales[0] + 60 / scales[1], rel=1e-6)


@pytest.mark.parametrize(
    ("outputs", "more", "message"),
    [
        ([Count()], {"eps": 1, "se": 1}, "`eps` or `se`"),
        ([Count(), Sum("days", 0, 60, se=1)], {}, "the standard error of persons"),
        ([Mean("days", 0, 60)], {"se": 1}, "error of a mean depends on the data"),
        ([Sum("days", 0, 60)], {"se": 1, "by": "ward", "keys": "unknown", "max_groups": 1}, "a count of persons"),
        ([Count()], {"se": 0}, "above 0"),
    ],
)
def test_a_standard_error_that_means_nothing_is_refused(folder, outputs, more, message):
    with pytest.raises(UsageError, match=message):
        release("stays.csv", outputs=outputs, delta=1e-6, max_rows=1, **ABOUT, **more)


@pytest.mark.parametrize("secret", ["s3cret", "s3cret/s3cret:s3cret", "s3cret?s3cret"])
def test_no_password_of_a_url_is_kept(secret):
    """Oracle: what SQLAlchemy reads as the password, which may hold a slash."""
    engine = pytest.importorskip("sqlalchemy.engine")
    url = f"postgresql://ann:{secret}@host:5432/clinic?sslmode=require&password={secret}&sslpassword=s3cret"
    assert engine.make_url(url).password == secret
    stated = declaration.described_data([url], Query(table="stays"))
    assert stated == {"url": "postgresql://ann@host:5432/clinic?sslmode=require", "table": "stays"}


def test_dates_have_no_sum():
    with pytest.raises(UsageError, match="no sum"):
        Sum("admitted", "2026-01-01", "2026-12-31", dates=True)


def test_what_fits_beside_a_ledger_is_told_and_fits(folder, capfd):
    about = ["--data", "stays.csv", "--person", "patient", "--count", "persons", "--delta", "0"]
    spend = [*about, "--ledger", "clinic.jsonl", "--max-eps", "1.5"]
    assert call(capfd, "release", *spend, "--eps", "1", "--out", "a")[0] == 0
    for words in (["--out", "b"], ["--dry-run"]):
        code, out, err = call(capfd, "release", *spend, "--eps", "1", *words)
        assert (code, out) == (1, "")
        refusal = "would bring clinic.jsonl to eps = 2 at delta 0; --max-eps is 1.5. At most eps = 0.5 fits"
        assert refusal in " ".join(err.split())
    assert not (folder / "b").exists()
    code, out, _ = call(capfd, "release", *spend, "--eps", "0.5", "--out", "b")
    assert code == 0
    assert "in all  eps = 1.5 at delta 0 (exact), with what the ledger held before" in out
    assert len(ledger.entries(folder / "clinic.jsonl")) == 2
    # the history of the folder is that of its ledger elsewhere
    assert budget(history=folder / "b", delta=0).epsilon.safe == pytest.approx(1.5)
    assert "No further release fits" in call(capfd, "release", *spend, "--eps", "1", "--out", "c")[2]


def test_total_is_about_the_ledger_and_this(folder):
    spent = {"person": "patient", "ledger": folder / "clinic.jsonl", "delta": 0}
    release("stays.csv", outputs=[Count()], eps=1, **spent)
    result = release("stays.csv", outputs=[Count("rows")], max_rows=1, eps=1.5, total=True, **spent)
    assert result.guarantee.epsilon.safe == pytest.approx(0.5, rel=1e-5)
    assert result.answer["total"]["epsilon"] <= 1.5


def test_what_was_paid_meanwhile_is_neither_ignored_nor_paid_twice(folder, monkeypatch):
    about = {"outputs": [Count()], "person": "patient", "delta": 0, "eps": 1, "ledger": folder / "clinic.jsonl"}
    plan = planning.plan

    def while_another_releases(*arguments):
        monkeypatch.setattr(planning, "plan", plan)
        release("stays.csv", out="report", fresh=(folder / "report").exists(), **about)
        return plan(*arguments)

    monkeypatch.setattr(planning, "plan", while_another_releases)
    again = release("stays.csv", out="report", **about)
    assert again.stored, "two processes with one question have one answer"
    assert len(ledger.entries(folder / "clinic.jsonl")) == 1
    monkeypatch.setattr(planning, "plan", while_another_releases)
    with pytest.raises(CheckFailed, match="meanwhile"):
        release("stays.csv", total=True, out="other", **{**about, "eps": 3})
    assert not (folder / "other").exists()


# what reads a folder


def test_a_folder_is_explained_checked_and_drawn(folder, capfd):
    about = {"person": "patient", "by": "ward", "keys": ["A", "B"], "max_groups": 2, "eps": 3, "delta": 0}
    for _ in range(2):
        done = release("stays.csv", outputs=[Count()], out="report", fresh=True, **about)
    code, out, _ = call(capfd, "explain", "report")
    assert code == 0
    assert "right at even odds" in out
    code, out, _ = call(capfd, "check", "report")
    assert code == 0, "the second release alone has the eps that is stated of it"
    assert "is proved" in out
    assert [path.name for path in plot("report")] == ["figure.png"]
    assert done.answer["total"]["epsilon"] > done.guarantee.epsilon.safe
    outputs = [Count(), Mean("days", 0, 60), Quantile("days", 0, 60)]
    release("stays.csv", outputs=outputs, out="three", noise="laplace", max_rows=1, **about)
    assert [path.name for path in plot("three", out="figures")] == ["figure.png"]
    (folder / "report/release.json").write_text("{}")
    for words in (["explain", "report"], ["plot", "report"]):
        code, _, err = call(capfd, *words)
        assert code == 2
        assert "release it again" in err


# what is said of unknown keys, of rows and of records


def test_a_dry_run_says_which_unknown_keys_show(folder):
    about = {"by": "ward", "keys": "unknown", "max_groups": 1, "person": "patient", "dry_run": True}
    result = release("stays.csv", outputs=[Count()], eps=1, delta=1e-6, noise="laplace", **about)
    shown = {row["persons"]: row["probability"] for row in result.answer["keys"]["shown"]}
    r = pytest.approx(0.36787944117)  # e^-1: P(Z >= 1) = r / (1 + r)
    assert result.answer["keys"]["threshold"] == 14
    assert shown[14] == pytest.approx(0.268941, abs=1e-6)  # case 22
    assert shown[15] == pytest.approx(1 - 0.268941, abs=1e-6)
    assert shown[1] == pytest.approx(result.answer["keys"]["leak"])
    assert sorted(shown.values()) == list(shown.values())
    assert Noise("laplace", 1.0).tail(2) / Noise("laplace", 1.0).tail(1) == r


def test_a_dry_run_gives_the_errors_of_means_and_quantiles_of_so_many_rows(folder):
    outputs = [Mean("days", 0, 60), Quantile("days", 0, 60, at=[0.5, 0.9])]
    result = release("stays.csv", outputs=outputs, eps=3, delta=0, max_rows=1, **ABOUT)
    errors = dict(result.expected(500))
    # Laplace noise of eps 1 on each part, of deviations sqrt(2 r) / (1 - r), r = e^(-eps / c), c = 1 and 30
    count, total = (math.sqrt(2) / (2 * math.sinh(1 / (2 * c))) for c in (1, 30))
    half = 1.96 * total / 500, 1.96 * math.hypot(total, 30 * count) / 500
    assert (
        errors["mean days of 500 rows"]
        == f"+- {half[0]:.4g} (95%, approximate) at the middle of the bounds, {half[1]:.4g} at an end"
    )
    ranks = 2 * 9 / 0.5 * math.log(61 / 0.05) / 10  # (2 Delta / eps0) ln(points / .05) over b
    percent = math.ceil(100 * ranks / 500 * 100) / 100  # to three digits, upwards
    assert errors["quantile days 0.9 of 500 rows"] == f"within {percent}% of the rows (95%, upper bound)"


def test_every_number_says_what_is_claimed_of_it(folder, capfd):
    """Exact by summing probabilities (test_sampling), an upper bound of ranks, or approximate by a normal variable."""
    claims = {"count": "exact", "sum": "exact", "histogram": "exact", "mean": "approximate", "quantile": "upper-bound"}
    about = "--data stays.csv --person patient --max-rows 1 --max-groups 1 --delta 0 --bounds days=0:60 --mean days"
    more = "--count persons --sum days --quantile days=.5 --histogram days=0,5,9 --eps 90 --out report --seed 1"
    code, out, _ = call(capfd, "release", *about.split(), *more.split())
    assert code == 0
    assert "(95%); NOT PRIVATE; approximate interval" in out
    assert "with probability 0.95 or more" in out
    assert "  95%   exact: +- and standard errors are those of the noise alone" in out
    rows = json.loads((folder / "report/release.json").read_text())["outputs"]
    assert {row["kind"]: row["claim"] for row in rows} == claims
    with (folder / "report/release.csv").open(newline="") as file:
        assert [row["claim"] for row in csv.DictReader(file)] == [row["claim"] for row in rows]
    assert "exact:" not in call(capfd, "release", *about.split(), "--eps", "1", "--dry-run")[1]


def test_the_eps_that_fits_is_not_above_the_limit(folder, capfd):
    about = ["--data", "stays.csv", "--person", "patient", "--count", "persons", "--delta", "0"]
    spend = ["release", *about, "--ledger", "clinic.jsonl", "--max-eps", "1.23456789", "--out", "a"]
    code, _, err = call(capfd, *spend, "--eps", "2")
    assert code == 1
    assert "--max-eps is 1.23456789. At most eps = 1.23456 fits" in " ".join(err.split())
    assert call(capfd, *spend, "--eps", "1.23456")[0] == 0


def test_a_release_without_a_number_is_a_table_without_rows(folder, capfd):
    about = {"person": "patient", "by": "ward", "keys": "unknown", "max_groups": 1, "eps": 1, "delta": 1e-6}
    assert release("stays.csv", outputs=[Count()], noise="laplace", out="report", **about).table == []
    code, out, _ = call(capfd, "release", "report/recipe.yaml", "--out", "report", "--csv")
    assert code == 0
    assert out.split() == ["key,output,value,half_width,lower,upper,standard_error,note,claim"]
    code, _, err = call(capfd, "plot", "report")
    assert code == 2
    assert "no number to draw" in err


def test_a_seed_marks_every_number(folder):
    release("stays.csv", outputs=[Count(), Quantile("days", 0, 60)], eps=3, delta=0, max_rows=1, person="patient",
            seed=1, out="report")  # fmt: skip
    with (folder / "report/release.csv").open(newline="") as file:
        notes = [row["note"] for row in csv.DictReader(file)]
    assert len(notes) == 2
    assert all(note.startswith("NOT PRIVATE") for note in notes)


def test_a_diagnosis_is_private_and_releases_nothing(folder, capfd):
    code, out, err = call(capfd, "release", "ward.yaml", "--diagnose")
    assert (code, out) == (0, "")
    assert err.startswith("wpriv: PRIVATE")
    assert "keys of one person           2 at most; 0 beyond the limit" in err
    assert "sum days                     0 missing, 0 below and 0 above clipped" in err
    assert sorted(path.name for path in folder.iterdir()) == ["stays.csv", "ward.yaml"]


def test_records_are_declared_and_never_counted(folder):
    about = {"outputs": [Count()], "person": "patient", "eps": 1, "dry_run": True}
    assert not release("stays.csv", delta=0.4, **about).warnings
    assert "1 / records" in release("stays.csv", delta=0.4, records=3, **about).warnings[0]


def test_one_text_is_a_list_of_one_and_a_number_is_none(folder):
    """Letters of "NA" would be two texts of missing cells, and a negative seed a recipe that cannot be read again."""
    about = {"person": "patient", "outputs": [Count()], "eps": 1, "delta": 0}
    assert asked(null="NA", **about) == asked(null=["NA"], **about)
    for wrong in ({"null": 5}, {"null": ["NA", 5]}, {"normalise": 1}, {"seed": -1}, {"seed": 2**63}):
        with pytest.raises(UsageError, match=f"`{next(iter(wrong))}`"):
            release("stays.csv", out="report", **wrong, **about)
    assert not (folder / "report").exists()


@pytest.mark.parametrize(
    ("kind", "keys", "wanted"),
    [
        ("integer", ["2026", 2025, "true"], (2026, 2025, True)),
        ("text", [2026, "A"], ("2026", "A")),
        ("date", ["2026-01-31"], (datetime.date(2026, 1, 31),)),
        ("", [2026, "A"], (2026, "A")),
    ],
)
def test_declared_keys_have_the_type_of_their_column(kind, keys, wanted):
    table = replace(tables.table({"id": [], "year": []}), types={"year": kind})
    question = asked(person="id", outputs=[Count()], by="year", keys=keys, eps=1, delta=0, max_groups=1)
    assert checked(question, table).keys == wanted


def test_declared_keys_that_no_column_of_that_type_can_have_are_refused():
    table = replace(tables.table({"id": [], "year": []}), types={"year": "integer"})
    question = asked(person="id", outputs=[Count()], by="year", keys=["old"], eps=1, delta=0, max_groups=1)
    with pytest.raises(UsageError, match="must be whole numbers"):
        checked(question, table)


def test_an_output_keeps_what_was_asked_where_its_column_has_whole_numbers(folder):
    table = replace(tables.table("stays.csv"), types={"days": "integer"})
    outputs = [Quantile("days", 0, 5, at=["0.25", 0.5]), Sum("days", 0, 5)]
    question = asked(person="patient", outputs=outputs, eps=1, delta=0, max_rows=1)
    quantile, total = checked(question, table).outputs
    assert quantile.bins() == ["0.25", "0.5"]
    assert quantile.grid.step == total.grid.step == 1


def test_dates_are_released_as_dates(folder):
    about = {"person": "patient", "eps": 1e6, "delta": 0, "max_rows": 2}
    ends = ("2026-01-01", "2026-12-31")
    outputs = [Quantile("admitted", *ends, dates=True), Mean("admitted", *ends, dates=True)]
    median, mean = release("stays.csv", outputs=outputs, seed=1, **about).rows
    assert "2026-01-03" <= median["value"] <= "2026-02-01"
    assert mean["value"] in ("2026-01-17", "2026-01-18")  # noon between the two is the middle of the two dates
    assert mean["interval"] == [mean["value"]] * 2


def test_what_is_printed_and_stored_has_its_schema(folder, capfd):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "wpriv/releases/release.schema.json").read_text())
    outputs = (
        "--count rows --mean days --quantile days=.5,.9 --histogram days=0,5,10 --bounds days=0:60 --max-groups 2 "
        "--max-rows 2 --by ward"
    )
    words = ["--data", "stays.csv", "--person", "patient", *outputs.split(), "--eps", "1", "--noise", "laplace"]
    for keys in ("A,B", "unknown"):
        for more in (["--dry-run"], ["--out", "out", "--fresh"]):
            code, out, _ = call(capfd, "release", *words, "--keys", keys, "--delta", "1e-6", *more, "--json")
            assert code == 0
            jsonschema.validate(json.loads(out), schema)
        stored = json.loads((folder / "out/release.json").read_text())
        jsonschema.validate(stored, schema)
        assert json.loads(out) == {name: value for name, value in stored.items() if name != "request"}
        shutil.rmtree(folder / "out")


def test_the_statement_says_nothing_of_the_size_of_the_table(folder):
    release("stays.csv", outputs=[Count()], person="patient", eps=1, delta=0, out="report")
    stated = json.loads((folder / "report/statement.json").read_text())
    assert stated["data"] == {
        "name": "stays.csv",
        "columns": ["patient", "ward", "days", "admitted"],
        "types": dict.fromkeys(["patient", "ward", "days", "admitted"], "text"),
    }
