"""The verb and the command: the cases of a small table, what others may see, folders and ledgers."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.command_line import call
from wpriv import BinCounts, Count, Mean, Quantile, Sum, budget, release
from wpriv.accounting import ledger
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.releases import release_folder

T = """patient,ward,days
p1,A,3
p1,A,5
p1,B,70
p2,A,0
p2,C,12
p3,B,-4
p3,B,
p4,A,nan
p5,A,inf
,A,7
p6,a,2
p6,A ,2
"""
ABOUT = {"person": "patient", "eps": 1, "delta": 1e-6}
PURE = {"person": "patient", "eps": 1, "delta": 0}
WARDS = {"by": "ward", "keys": ["A", "B", "C", "D"]}


@pytest.fixture
def stays(tmp_path):
    path = tmp_path / "stays.csv"
    path.write_text(T)
    return path


def values(result):
    return [row["value"] for row in result.rows]


# numbered as the cases of the specification; Laplace noise where the multiplier of Gaussian noise takes seconds
@pytest.mark.parametrize(
    ("outputs", "more", "wanted"),
    [
        ([Count()], {}, [6]),  # 1
        ([Count("rows")], {"max_rows": 3}, [11]),  # 3
        ([Sum("days", 0, 60)], {"max_rows": 3}, [144]),  # 4
        ([Count()], {**WARDS, "max_groups": 2}, [4, 2, 1, 0]),  # 7
        ([Count()], {**WARDS, "max_groups": 2, "normalise": ["strip", "casefold"]}, [5, 2, 1, 0]),  # 8
        ([Count("rows")], {**WARDS, "max_groups": 2, "max_rows": 3}, [5, 3, 1, 0]),  # 9
        ([BinCounts("days", (0, 7, 30, 60))], {"max_groups": 2, "max_rows": 2}, [5, 1, 0]),  # 10
        ([BinCounts("days", (0, 7, 30, 60), outside="clip")], {"max_groups": 2, "max_rows": 2}, [6, 1, 2]),  # 10
        ([BinCounts("days", (0, 7, 30), outside="bins")], {"max_groups": 3, "max_rows": 2}, [1, 5, 1, 2]),
        ([Count(overall=True), Count()], {**WARDS, "max_groups": 2}, [6, 4, 2, 1, 0]),  # 11
        ([Count(), Sum("days", 0, 60)], {"max_rows": 3}, [6, 144]),  # 12
        ([Count()], {**WARDS, "max_groups": 2, "other": "rest"}, [4, 2, 1, 0, 1]),
    ],
)
def test_cases_of_the_table(stays, noiseless, outputs, more, wanted):
    assert values(release(stays, outputs=outputs, **PURE, **more)) == wanted


@pytest.mark.slow
def test_the_mean_is_that_of_count_and_centred_sum(stays, noiseless):
    (row,) = release(stays, outputs=[Mean("days", 0, 60)], max_rows=3, **ABOUT).rows  # 6
    assert row["parts"] == {"count": 9, "sum": -126}
    assert row["value"] == "16.0000"


def test_one_row_of_several_is_chosen_by_the_key(stays, noiseless):
    """Case 5: the mean over keys is 86.667 with variance 733.6; 120 keys, within five standard errors."""
    sums = [
        release(stays, outputs=[Sum("days", -10, 60)], max_rows=1, seed=seed, **PURE).rows[0]["value"]
        for seed in range(120)
    ]
    assert set(sums) <= {first + second - 4 + 60 + 2 for first in (3, 5, 60) for second in (0, 12)}
    assert abs(sum(sums) / 120 - 86.667) < 5 * (733.6 / 120) ** 0.5


def test_amounts_are_exact_decimals(tmp_path, noiseless):
    path = tmp_path / "amounts.csv"
    path.write_text("id,amount\n1,.10\n2,.20\n3,.30\n")
    result = release(path, outputs=[Sum("amount", 0, 100, ".01")], max_rows=1, person="id", eps=0.5, delta=1e-7)  # 15
    assert values(result) == ["0.60"]
    assert result.rows[0]["noise"]["sensitivity"] == 10000


def test_sums_beyond_64_bits_are_exact(noiseless):
    table = {"id": list(range(65536)), "x": [2**47] * 65536}
    result = release(table, outputs=[Sum("x", 0, "2^47")], max_rows=1, person="id", eps=1, delta=1e-6)  # 24
    assert values(result) == [2**63]


def test_the_median_is_drawn_by_the_exponential_mechanism():
    """Case 16: P(21) = P(22) = .1415307, P(0) = .0015723, P(60) = .0025922; exact weights, and 300 draws."""
    xs = [3, 5, 12, 20, 21, 22, 23, 24, 40, 60]
    table = {"id": list(range(10)), "x": xs}
    drawn = []
    for seed in range(300):
        result = release(table, outputs=[Quantile("x", 0, 60)], max_rows=1, person="id", eps=1, delta=0, seed=seed)
        drawn.append(result.rows[0]["value"])
    assert abs(sum(drawn) / 300 - 23.2824) < 5 * (121.744 / 300) ** 0.5


def test_only_a_header_is_a_table(tmp_path, noiseless):
    path = tmp_path / "empty.csv"
    path.write_text("patient,ward,days\n")  # 23
    more = {"max_rows": 3, "max_groups": 2}
    assert values(release(path, outputs=[Count(), Sum("days", 0, 60)], **PURE, max_rows=3)) == [0, 0]
    assert values(release(path, outputs=[Count()], **PURE, **WARDS, **more)) == [0, 0, 0, 0]
    assert values(release(path, outputs=[Count()], by="ward", keys="unknown", **ABOUT, **more)) == []
    mean = release(path, outputs=[Mean("days", 0, 60)], noise="laplace", max_rows=1, **ABOUT).rows[0]
    assert mean["value"] is not None or "too small" in mean["note"]


def test_unknown_keys_are_shown_above_the_threshold_with_the_count_that_showed_them(noiseless):
    people = [f"{name}{i}" for name, count in (("x", 40), ("y", 23), ("z", 24)) for i in range(count)]
    table = {"id": people, "word": [name[0] for name in people], "v": [1] * len(people)}
    outputs = [Count(), Sum("v", 0, 1, 1)]
    result = release(
        table, outputs=outputs, by="word", keys="unknown", max_groups=1, max_rows=1, person="id",
        noise="laplace", eps=2, delta=1e-6,
    )  # fmt: skip
    assert result.answer["keys"]["threshold"] == 14
    assert [(row["name"], row["key"], row["value"]) for row in result.rows] == [
        ("persons", "x", 40), ("persons", "y", 23), ("persons", "z", 24),
        ("sum v", "x", 40), ("sum v", "y", 23), ("sum v", "z", 24),
    ]  # fmt: skip
    few = {"id": people[:14], "word": ["x"] * 14, "v": [1] * 14}
    assert not release(
        few, outputs=[Count()], by="word", keys="unknown", max_groups=1, person="id", noise="laplace", eps=1, delta=1e-6
    ).rows


# what others may see

cells = st.sampled_from(["", "3", "5", "70", "-4", "inf", "nan", "oops", "1e999999999", "0.5", '"a, ""b"""', "é", "NA"])
wards = st.sampled_from(["A", "B", "C", "", "zzz", "A ", "\ud800"])
table_rows = st.lists(st.tuples(st.sampled_from(["p1", "p2", "", "7", "007"]), wards, cells), max_size=6)


def written(rows):
    body = "".join(f"{person},{ward},{days}\n" for person, ward, days in rows)
    return ("patient,ward,days\n" + body).encode("utf-8", "surrogatepass")


def masked(data):
    """All that is said, without the numbers that are noisy."""
    answer = json.loads(data)
    for row in answer["outputs"]:
        row |= {"value": None, "interval": None, "note": row["kind"], "parts": None}
    return answer


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table_rows, st.lists(st.tuples(st.just("new"), wards, cells), max_size=4))
def test_neighbours_differ_in_noisy_numbers_only(tmp_path, capfd, others, added):
    seen = []
    for rows in (others, others + added):
        path = tmp_path / "t.csv"
        path.write_bytes(written(rows))
        words = [
            *(
                "release",
                "--data",
                str(path),
                "--person",
                "patient",
                "--by",
                "ward",
                "--keys",
                "A,B",
                "--max-rows",
                "2",
            ),
            *("--max-groups", "2", "--count", "persons", "--count", "rows", "--sum", "days", "--bounds", "days=-10:60"),
            *("--histogram", "days=0,7,30", "--quantile", "days=.5", "--eps", "1", "--delta", "0", "--seed", "5"),
        ]
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)  # with its ledger, whose earlier lines are part of the answer
        code, stdout, stderr = call(capfd, *words, "--out", str(out), "--json")
        answer = masked(stdout)
        assert code == 0
        del answer["ledger"]
        seen.append((stderr, answer))
    assert seen[0] == seen[1]


def test_a_dry_run_reads_no_row(tmp_path, capfd):
    path, words = tmp_path / "t.csv", []
    seen = []
    for body in ("p1,A,3\n", '"open,\x00\xff\n1,2,3,4,5,6\n'):
        path.write_bytes(b"patient,ward,days\n" + body.encode("latin-1"))
        words = ["release", "--data", str(path), "--person", "patient", "--count", "persons"]
        seen.append(call(capfd, *words, "--eps", "1", "--delta", "1e-6", "--dry-run"))
    assert seen[0] == seen[1]
    assert seen[0][0] == 0
    assert "persons  -  +- 8 (95%)    standard error 4.23078" in seen[0][1]
    assert list(tmp_path.iterdir()) == [path], "nothing is written"


@pytest.mark.parametrize("body", ['p1,"3\np2,4\n', "p1\n", "p1,2,3\n"])
def test_what_is_no_csv_is_refused_whole_and_without_a_place(tmp_path, body):
    path = tmp_path / "t.csv"
    path.write_text("patient,days\n" + body)
    with pytest.raises(UsageError) as error:
        release(path, outputs=[Count()], **ABOUT)
    assert (
        str(error.value) == f"{path}: not a CSV table by RFC 4180, with as many cells in each row as in the first one"
    )


def test_a_misspelt_column_is_named_before_anything_is_spent(stays, tmp_path, capfd):
    words = ["release", "--data", str(stays), "--person", "pateint", "--count", "persons", "--eps", "1"]
    code, _, stderr = call(capfd, *words, "--delta", "1e-6", "--out", str(tmp_path / "out"))
    assert code == 2
    assert "no column called 'pateint'; did you mean 'patient'?" in stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sum", "days"], "--bounds days=LO:HI"),
        (["--sum", "days", "--bounds", "days=0:60"], "--max-rows"),
        (["--count", "persons", "--by", "ward"], "--keys"),
        (["--count", "persons", "--by", "ward", "--keys", "A,B"], "--max-groups"),
        (["--count", "people"], "no count called 'people'"),
        (["--count", "persons", "--weight", "mean=2"], "no output called 'mean'"),
        (["--sum", "days", "--bounds", "days=0:60", "--types", "days=text"], "give --types days=number"),
        (
            ["--sum", "days", "--bounds", "day=0:60"],
            "--bounds of day: no sum, mean or quantile is of this column; found days",
        ),
        (["--sum", "days", "--bounds", "days=01.01.2026:31.12.2026"], "--types COLUMN=date"),
        (["--quantile", "days=90", "--bounds", "days=0:60"], "found 90"),
        (["--count", "persons", "--by", "ward", "--keys", "A", "B"], "'B' belongs to no flag"),
        (["--count", "persons", "other.csv"], "a table is no recipe; give it as --data other.csv"),
        ([], "needs an output"),
    ],
)
def test_what_is_missing_is_named(stays, tmp_path, capfd, words, message):
    about = ["--person", "patient", "--eps", "1", "--delta", "1e-6", "--out", str(tmp_path / "out")]
    code, _, stderr = call(capfd, "release", "--data", str(stays), *about, *words)
    assert code == 2
    assert message in stderr


def test_a_file_in_the_place_of_the_folder_is_refused(stays):
    with pytest.raises(UsageError, match="is a file; name a folder"):
        release(stays, outputs=[Count()], out=stays, **ABOUT)


def test_float_identifiers_are_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(io.StringIO('id\n9007199254740993\n9007199254740992\n""\n'))
    with pytest.raises(UsageError, match="column of floats"):
        release(frame, outputs=[Count()], person="id", eps=1, delta=1e-6)


def test_a_data_frame_is_a_table(stays, noiseless):
    pandas = pytest.importorskip("pandas")
    result = release(pandas.read_csv(stays), outputs=[Count(), Sum("days", 0, 60)], max_rows=3, **PURE)
    assert values(result) == [6, 144]


def test_no_two_numbers_share_their_noise():
    table = {"id": [1], "x": [1]}
    outputs = [Count(), BinCounts("x", (0, 2), of="persons"), Count("rows")]
    result = release(table, outputs=outputs, person="id", eps=0.01, delta=0, max_groups=1, max_rows=1)
    assert len(set(values(result))) == 3


# folders and ledgers


def test_a_release_is_paid_before_its_rows_are_read(stays, tmp_path, monkeypatch):
    out = tmp_path / "out"

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("wpriv.releases.aggregate.released", fail)
        with pytest.raises(KeyboardInterrupt):
            release(stays, outputs=[Count()], out=out, **ABOUT)
    assert len(ledger.entries(out / "ledger.jsonl")) == 1
    assert not (out / "release.json").exists()
    release(stays, outputs=[Count()], out=out, **ABOUT)
    assert [entry.run for entry in ledger.entries(out / "ledger.jsonl")] == [1, 2], "its noise was another"


def test_a_release_is_shown_again_and_spends_nothing(stays, tmp_path):
    out = tmp_path / "out"
    first = release(stays, outputs=[Count()], out=out, **ABOUT)
    stays.write_text("patient,ward,days\n")
    again = release(stays, outputs=[Count()], out=out, **ABOUT)
    assert again.stored
    assert values(again) == values(first)
    assert again.guarantee.epsilon == first.guarantee.epsilon
    assert len(ledger.entries(out / "ledger.jsonl")) == 1
    fresh = release(stays, outputs=[Count()], out=out, fresh=True, **ABOUT)
    assert not fresh.stored
    assert len(ledger.entries(out / "ledger.jsonl")) == 2
    with pytest.raises(UsageError, match="another release"):
        release(stays, outputs=[Count("rows")], max_rows=1, out=out, **ABOUT)


def test_the_ledger_of_a_release_is_a_history(stays, tmp_path):
    out = tmp_path / "out"
    release(stays, outputs=[Count()], out=out, **WARDS, max_groups=2, **ABOUT)
    row = budget(history=out, delta=1e-6)
    assert row.process.describe() == [
        {"mech": "discrete-gauss", "sigma": 5.9766427, "sensitivity": 1, "n": 2, "sampling": "none"}
    ]
    assert row.epsilon.safe <= 1
    with (out / "release.csv").open(newline="") as file:
        assert [line["key"] for line in csv.DictReader(file)] == WARDS["keys"]
    assert "patient's rows" in (out / "statement.md").read_text()


def test_a_ledger_that_is_full_refuses_before_a_row_is_read(stays, tmp_path):
    shared = tmp_path / "clinic.jsonl"
    release(stays, outputs=[Count()], ledger=shared, max_eps=1, **ABOUT)
    stays.write_text('patient\n"never read')
    with pytest.raises(CheckFailed, match="would bring"):
        release(stays, outputs=[Count()], ledger=shared, max_eps=1.2, **ABOUT)
    assert len(ledger.entries(shared)) == 1


def test_a_dry_run_gives_relative_errors(stays, capfd):
    words = ["release", "--data", stays, "--person", "patient", "--count", "persons", "--eps", "1", "--delta", "1e-6"]
    code, stdout, _ = call(capfd, *words, "--dry-run", "--expect", "1000")
    assert code == 0
    assert "persons of 1000  0.42% standard error" in " ".join(stdout.split(" " * 4))
    code, _, stderr = call(capfd, *words, "--expect", "1000", "--out", "nowhere")
    assert code == 2
    assert "--dry-run" in stderr


def test_quiet_is_for_one_number(stays, tmp_path, capfd):
    words = ["release", "--data", stays, "--person", "patient", "--quantile", "days=.5,.9", "--bounds", "days=0:60"]
    words += ["--max-rows", "1", "--eps", "1", "--delta", "0", "--quiet", "--out", tmp_path / "out"]
    code, _, stderr = call(capfd, *words)
    assert code == 2
    assert "single output" in stderr
    assert not (tmp_path / "out").exists()


def test_a_key_of_bytes_that_are_no_text_is_printed_as_escapes(tmp_path, capfd, noiseless):
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,word\n" + b"".join(b"%d,\xff\n" % i for i in range(40)))
    words = ["release", "--data", path, "--person", "id", "--by", "word", "--keys", "unknown", "--max-groups", "1"]
    words += ["--count", "persons", "--noise", "laplace", "--eps", "1", "--delta", "1e-6", "--out", tmp_path / "out"]
    code, stdout, _ = call(capfd, *words)
    assert code == 0
    assert "\\udcff  persons  40" in stdout


@pytest.mark.parametrize("table", [{1: ["p"]}, {"id": ["p"], "x": []}])
def test_a_table_with_wrong_columns_is_refused(table):
    with pytest.raises(UsageError, match="columns of a table"):
        release(
            table, outputs=[Sum("x", 0, 5, 1)] if "x" in table else [Count()], max_rows=1, **{**PURE, "person": "id"}
        )


def test_unknown_keys_at_delta_0_are_not_supported(stays):
    with pytest.raises(Unsupported, match="delta"):
        release(stays, outputs=[Count()], by="ward", keys="unknown", max_groups=1, **PURE)


def test_a_seed_marks_the_release(stays, tmp_path, capfd):
    words = ["release", "--data", str(stays), "--person", "patient", "--count", "persons", "--eps", "1"]
    code, _, stderr = call(capfd, *words, "--delta", "1e-6", "--seed", "1", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "NOT PRIVATE" in stderr
    stored = json.loads((tmp_path / "out" / release_folder.RELEASE).read_text())
    assert stored["private"] is False


def test_a_number_is_a_float(stays, noiseless):
    result = release(stays, outputs=[Count()], **WARDS, max_groups=2, **PURE)
    assert float(result["persons", "B"]) == 2
    with pytest.raises(UsageError, match="there are persons A"):
        result["persons"]
