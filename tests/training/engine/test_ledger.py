"""The ledger loses no step and pays for none twice, whatever is cut off where."""

from __future__ import annotations

import errno
import hashlib
import json
import os

import pytest

from wpriv.accounting import ledger
from wpriv.accounting.ledger import FORMAT
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files import durable_writes

PLANNED = 5


def Ledger(path, run=1, planned=PLANNED, resume=False):
    return ledger.Ledger(path, run, planned, adjacency="add-remove", stream="a", resume=resume)


STEP = Step(Gauss(1.5, 1.0), 1, Sampling("poisson", 0.1))
OTHER = Step(Gauss(2.0, 2.0), 1, Sampling("none"))


def test_what_was_spent_comes_back_as_a_process(tmp_path):
    book = Ledger(tmp_path / "l.jsonl")
    for number in (1, 2, 3):
        book.spend(number, STEP)
    book.close()
    book = Ledger(tmp_path / "l.jsonl", run=2)
    book.spend(1, OTHER)
    book.close()
    spent = ledger.entries(tmp_path / "l.jsonl")
    assert ledger.process(spent, "add-remove") == Process(
        (Step(Gauss(1.5), 3, Sampling("poisson", 0.1)), Step(Gauss(2.0, 2.0))), "add-remove"
    )


def test_a_step_is_on_disk_before_spend_returns(tmp_path):
    book = Ledger(tmp_path / "l.jsonl")
    for number in (1, 2):
        book.spend(number, STEP)
        assert len(ledger.entries(tmp_path / "l.jsonl")) == number


def test_a_step_made_again_is_not_paid_again_and_another_release_in_its_place_is_refused(tmp_path):
    book = Ledger(tmp_path / "l.jsonl")
    for number in (1, 2, 3):
        book.spend(number, STEP)
    again = Ledger(tmp_path / "l.jsonl", resume=True)
    for number in (2, 3, 4):
        again.spend(number, STEP)
    assert len(ledger.entries(tmp_path / "l.jsonl")) == 4
    with pytest.raises(UsageError, match="fork=True"):
        again.spend(2, OTHER)
    with pytest.raises(UsageError, match="step 5"):
        again.spend(7, STEP)


@pytest.mark.parametrize("left", range(1, 40, 7))
def test_a_line_cut_short_is_forgotten_and_written_again(tmp_path, left):
    path = tmp_path / "l.jsonl"
    book = Ledger(path)
    book.spend(1, STEP)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:left])
    assert len(ledger.entries(path)) == 1
    again = Ledger(path, resume=True)
    again.spend(2, STEP)
    assert [e.step for e in ledger.entries(path)] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b"nonsense",
        b'{"run": 1, "step": 2, "mech": "gauss"}',
        b'{"run": 1, "step": 2, "of": 5, "mech": "gauss", "previous": "0"}',
        b'{"run": 0, "step": 2, "of": 5, "previous": ""}',
        b'{"run": true, "step": 2, "of": 5, "previous": ""}',
        b"\xff",
    ],
)
def test_a_ledger_that_something_else_has_written_is_refused(tmp_path, line):
    path = tmp_path / "l.jsonl"
    Ledger(path).spend(1, STEP)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(UsageError, match=r"l\.jsonl:2"):
        ledger.entries(path)


def test_an_earlier_run_cannot_go_on_behind_a_later_one(tmp_path):
    Ledger(tmp_path / "l.jsonl", run=2).spend(1, STEP)
    with pytest.raises(UsageError, match="run 2"):
        Ledger(tmp_path / "l.jsonl", run=1)


def test_a_line_holds_all_that_budget_needs(tmp_path):
    Ledger(tmp_path / "l.jsonl").spend(1, STEP)
    about = json.loads((tmp_path / "l.jsonl").read_text())
    digest = about.pop("digest")
    assert len(digest) == 32
    assert about == {
        "run": 1, "step": 1, "of": PLANNED, "mech": "gauss", "sigma": 1.5, "sensitivity": 1.0, "sampling": "poisson",
        "rate": 0.1,
        "adjacency": "add-remove", "stream": "a", "previous": FORMAT,
    }  # fmt: skip


def filled(path, runs=((1, 4), (2, 3))):
    """A ledger of complete runs, and its lines."""
    for run, steps in runs:
        book = Ledger(path, run, steps)
        for number in range(1, steps + 1):
            book.spend(number, STEP if run == 1 else OTHER)
        book.close()
    return path.read_bytes().splitlines(keepends=True)


def test_a_run_that_does_not_resume_finds_no_line_of_its_own(tmp_path):
    filled(tmp_path / "l.jsonl")
    for run in (1, 2):
        with pytest.raises(UsageError):
            Ledger(tmp_path / "l.jsonl", run)
    assert Ledger(tmp_path / "l.jsonl", 3).steps == 0


def test_every_line_that_is_changed_removed_swapped_or_repeated_is_noticed(tmp_path):
    path = tmp_path / "l.jsonl"
    lines = filled(path)
    at_the_end = ledger.Position(7, ledger.entries(path)[-1].digest)
    for at, line in enumerate(lines):
        before, after = lines[:at], lines[at + 1 :]
        changed = line.replace(b'"sigma": ', b'"sigma": 1')
        swapped = [*before, *after[:1], line, *after[1:]]
        for content in ([*before, changed, *after], [*before, *after], [*before, line, line, *after], swapped):
            path.write_bytes(b"".join(content))
            if content != lines:
                # what no later line can show is shown by the position that the model and the statement record
                with pytest.raises(UsageError):
                    ledger.require(ledger.entries(path), at_the_end, path, "the model")
                if content[: len(lines) - 1] != lines[:-1]:
                    with pytest.raises(UsageError):
                        ledger.entries(path)


def test_a_ledger_that_was_cut_or_replaced_is_not_that_of_its_model(tmp_path):
    path, other = tmp_path / "l.jsonl", tmp_path / "other.jsonl"
    filled(path)
    rows = ledger.entries(path)
    at = ledger.position(rows)
    ledger.require(rows, at, path, "the model")
    assert at == ledger.Position(7, rows[-1].digest)
    for length in range(7):
        with pytest.raises(UsageError):
            ledger.require(rows[:length], at, path, "the model")
    filled(other, ((1, 7), (2, 7)))
    with pytest.raises(UsageError):
        ledger.require(ledger.entries(other), at, other, "the model")


def test_no_step_beyond_the_plan_is_taken(tmp_path):
    book = Ledger(tmp_path / "l.jsonl", planned=2)
    book.spend(1, STEP)
    book.spend(2, STEP)
    with pytest.raises(UsageError):
        book.spend(3, STEP)


def test_a_line_of_an_earlier_format_is_refused(tmp_path):
    (tmp_path / "l.jsonl").write_text(
        '{"run": 1, "step": 1, "mech": "gauss", "sigma": 1.5, "sensitivity": 1.0, "sampling": "none"}\n'
    )
    with pytest.raises(UsageError, match="jsonl"):
        ledger.entries(tmp_path / "l.jsonl")


def test_a_full_disk_leaves_whole_lines_and_an_error_of_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "l.jsonl"
    book = Ledger(path)
    book.spend(1, STEP)

    def write(descriptor, data, real=os.write):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(durable_writes.os, "write", write)
        with pytest.raises(MissingResource, match="No space left"):
            book.spend(2, STEP)
    book.spend(2, STEP)
    assert [entry.step for entry in ledger.entries(path)] == [1, 2]


def test_a_step_is_not_made_again_with_other_noise(tmp_path):
    path = tmp_path / "l.jsonl"
    Ledger(path).spend(1, STEP)
    other = ledger.Ledger(path, 1, PLANNED, adjacency="add-remove", stream="b", resume=True)
    with pytest.raises(UsageError):
        other.spend(1, STEP)
    assert len(ledger.entries(path)) == 1


def test_steps_under_different_neighbours_are_not_one_process(tmp_path):
    path = tmp_path / "l.jsonl"
    Ledger(path).spend(1, OTHER)
    ledger.Ledger(path, 2, PLANNED, adjacency="replace-one", stream="b").spend(1, OTHER)
    rows = ledger.entries(path)
    assert [ledger.process([row]).adjacency for row in rows] == ["add-remove", "replace-one"]
    for adjacency in ("", "add-remove", "replace-one"):
        with pytest.raises(Unsupported):
            ledger.process(rows, adjacency)


ALLOCATED = Step(Gauss(1.5, 1.0), 4, Sampling("allocation", 0.25))


def spend(path, run, steps, step=ALLOCATED, planned=12):
    book = Ledger(path, run=run, planned=planned)
    for number in range(1, steps + 1):
        book.spend(number, step)
    book.close()


@pytest.mark.parametrize(("steps", "accounted"), [(1, 4), (3, 4), (4, 4), (5, 8), (12, 12)])
def test_a_pass_that_was_cut_short_is_accounted_for_as_a_whole_one(tmp_path, steps, accounted):
    spend(tmp_path / "l.jsonl", 1, steps)
    spent = ledger.entries(tmp_path / "l.jsonl")
    assert ledger.process(spent) == Process((Step(Gauss(1.5), accounted, Sampling("allocation", 0.25)),), "add-remove")
    cut = [(each.run, each.steps, each.pass_steps) for each in ledger.cut_passes(spent)]
    assert cut == ([(1, steps % 4, 4)] if steps % 4 else [])


def test_the_parts_of_passes_of_two_runs_never_make_up_one_pass(tmp_path):
    # 2 + 2 steps are two passes, since the second run draws a pass of its own
    spend(tmp_path / "l.jsonl", 1, 2)
    spend(tmp_path / "l.jsonl", 2, 2)
    spend(tmp_path / "l.jsonl", 3, 1, STEP)
    spend(tmp_path / "l.jsonl", 4, 8)
    spent = ledger.entries(tmp_path / "l.jsonl")
    assert [(step.n, step.sampling.kind) for step in ledger.process(spent).steps] == [
        (8, "allocation"), (1, "poisson"), (8, "allocation")
    ]  # fmt: skip
    assert [(each.run, each.steps) for each in ledger.cut_passes(spent)] == [(1, 2), (2, 2)]


@pytest.mark.parametrize("strategy", ["lambda:0.5", "identity"])
def test_a_training_with_correlated_noise_that_was_cut_short_is_accounted_for_whole(tmp_path, strategy):
    whole = Step(MatrixGauss(3.0, strategy), 12, Sampling("allocation", 1 / 12))  # one epoch
    spend(tmp_path / "l.jsonl", 1, 4, whole)
    spend(tmp_path / "l.jsonl", 2, 12, whole)
    spent = ledger.entries(tmp_path / "l.jsonl")
    assert ledger.process(spent).steps == (whole, whole)
    [cut] = ledger.cut_passes(spent)
    assert str(cut).startswith("run 1 took 4 of the 12 steps of its training, whose noise is correlated")
    assert ledger.CutPass(**cut.as_dict()) == cut


def test_a_change_of_the_last_line_alone_is_noticed(tmp_path):
    path = tmp_path / "l.jsonl"
    lines = filled(path)
    for kept in (1, 4, 7):
        last = lines[kept - 1]
        for old, new in (
            (b'"sigma": ', b'"sigma": 1'),
            (b'"sigma": ', b'"sgima": '),
            (b'"mech": "gauss"', b'"mech": "laplace"'),
            (b'"sensitivity"', b'"tivity"'),
            (b'"adjacency": "add-remove"', b'"adjacency": "replace-one"'),
            (b'"stream": "a"', b'"stream": "b"'),
            (b'"of": ', b'"of": 1'),
            (b'"digest": "', b'"digest": "0'),
            (last[last.index(b', "digest"') : -2], b""),
            (b'": ', b'":'),
        ):
            changed = last.replace(old, new)
            assert changed != last
            path.write_bytes(b"".join([*lines[: kept - 1], changed]))
            with pytest.raises(UsageError, match=rf"l\.jsonl:{kept}"):
                ledger.entries(path)


def earlier_format(*releases):
    """The lines of a ledger as wpriv.ledger/2 had them: the chain of digests, and none of a line's own."""
    previous, lines = "wpriv.ledger/2", []
    for step, release in enumerate(releases, start=1):
        head = f'{{"run": 1, "step": {step}, "of": {PLANNED}, {release}, '
        line = f'{head}"adjacency": "add-remove", "stream": "a", "previous": "{previous}"}}'.encode()
        previous = hashlib.sha256(line).hexdigest()[:32]
        lines.append(line + b"\n")
    return b"".join(lines)


RELEASE = '"mech": "gauss", "sigma": 1.5, "sensitivity": 1.0, "sampling": "poisson", "rate": 0.1'


def test_a_ledger_of_the_format_before_is_read_and_continued(tmp_path):
    path = tmp_path / "l.jsonl"
    path.write_bytes(earlier_format(RELEASE, RELEASE))
    assert ledger.process(ledger.entries(path)) == Process((Step(Gauss(1.5), 2, Sampling("poisson", 0.1)),))
    book = Ledger(path, resume=True)
    for number in (1, 2, 3, 4):
        book.spend(number, STEP)
    book.close()
    assert [entry.sealed for entry in ledger.entries(path)] == [False, False, True, True]
    lines = path.read_bytes().splitlines(keepends=True)
    data = json.loads(lines[3])
    del data["digest"]
    path.write_bytes(b"".join([*lines[:3], json.dumps(data).encode() + b"\n"]))
    with pytest.raises(UsageError, match=r"l\.jsonl:4"):
        ledger.entries(path)


@pytest.mark.parametrize(
    "release",
    [
        RELEASE.replace("sigma", "sgima"),
        RELEASE.replace('"sigma": 1.5, ', ""),
        RELEASE.replace('"gauss"', '"gaus"'),
        RELEASE.replace('"gauss"', "5"),
        RELEASE.replace('"gauss"', "[1]"),
        RELEASE.replace("1.5", '"1.5x"'),
        RELEASE.replace("1.5", "NaN"),
        RELEASE.replace("1.5", "-1"),
        RELEASE.replace("0.1", "1.1"),
        RELEASE.replace("0.1", "[0.1]"),
        RELEASE.replace(', "rate": 0.1', ""),
        RELEASE.replace('"poisson"', '"poison"'),
        RELEASE.replace('"poisson"', "null"),
        RELEASE + ', "n": 3',
        RELEASE + ', "max_batch": "x"',
    ],
)
def test_a_line_that_names_no_release_is_refused_with_its_place(tmp_path, release):
    path = tmp_path / "l.jsonl"
    path.write_bytes(earlier_format(RELEASE, release))
    with pytest.raises(UsageError, match=r"l\.jsonl:2"):
        ledger.entries(path)


def test_the_largest_batch_is_part_of_a_line(tmp_path):
    cut = Step(Gauss(1.5), 1, Sampling("poisson", 0.1, 50))
    Ledger(tmp_path / "l.jsonl").spend(1, cut)
    assert [ledger.fewest(entry.release) for entry in ledger.entries(tmp_path / "l.jsonl")] == [cut]
