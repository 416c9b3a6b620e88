"""Tables of a benchmark as Markdown and CSV, and whether each target is met."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.jobs import Job
from benchmarks.measure import Limits, Result

MINE, COARSE = "wpriv", "wpriv at 1e-3"
PEERS = ("dp_accounting", "prv_accountant", "opacus")
SLACK = 1e-9
"""Relative tolerance of bounds, since the true answers are known to about ten digits."""


@dataclass(frozen=True)
class Measured:
    """One job and the result of every program."""

    job: Job
    results: dict[str, Result]

    def ratio(self, peer: str) -> float | None:
        """Return the peer's time over that of wpriv (a lower bound if it was cut); None if it has no finite answer."""
        theirs, mine = self.results.get(peer), self.results[MINE]
        if theirs is None or not mine.answered:
            return None
        if theirs.answered:
            return None if math.isinf(theirs.upper) else theirs.seconds() / mine.seconds()
        return float(theirs.note.split()[2]) / mine.seconds() if theirs.note.startswith("cut at") else None


@dataclass(frozen=True)
class Target:
    """One line of the table of targets."""

    figure: str
    wanted: str
    found: str
    met: bool


def width(result: Result) -> float:
    """Return the relative width of a bracket."""
    if not result.upper < math.inf:
        return math.inf
    return (result.upper - result.lower) / result.upper if result.upper > 0 else 0.0


def holds(result: Result, truth: float) -> bool:
    return result.answered and result.lower * (1 - SLACK) <= truth <= result.upper * (1 + SLACK)


def questions(rows: list[Measured]) -> str:
    """Return the table of the jobs that compute eps or delta."""
    head = ["job", "truth", "wpriv, certified", "width", "ms", "ms at 1e-3", "MiB"]
    lines = [head + [cell for peer in PEERS for cell in (_short(peer), "ms", "x")]]
    for row in rows:
        if row.job.solve:
            continue
        mine, coarse = row.results[MINE], row.results[COARSE]
        mark = "" if not mine.answered or holds(mine, row.job.truth) else " MISSED"
        ends = f"{_number(mine.lower)} .. {_number(mine.upper)}{mark}" if mine.answered else mine.note
        cells = [
            row.job.name,
            _number(row.job.truth),
            ends,
            f"{width(mine):.1e}",
            _ms(mine),
            _ms(coarse),
            f"{mine.mib:.0f}",
        ]
        lines.append(cells + [cell for peer in PEERS for cell in _peer(row, peer)])
    return _table(lines) if len(lines) > 1 else ""


def calibrations(rows: list[Measured]) -> str:
    """Return the table of the jobs that compute a parameter."""
    head = ["calibrate", "least or most", "wpriv", "off by", "ms", "at 1e-3", "off by", "ms"]
    lines = [head + [cell for peer in PEERS for cell in (_short(peer), "ms", "x")]]
    for row in rows:
        if row.job.solve:
            cells = [row.job.name, _number(row.job.truth)]
            for mine in (row.results[MINE], row.results[COARSE]):
                off = f"{mine.upper / row.job.truth - 1:+.1e}" if mine.answered else "-"
                cells += [_number(mine.upper) if mine.answered else mine.note, off, _ms(mine)]
            lines.append(cells + [cell for peer in PEERS for cell in _peer(row, peer)])
    return _table(lines) if len(lines) > 1 else ""


def targets(rows: list[Measured], start: tuple[float, float] | None) -> list[Target]:
    """Return the targets with the worst measured values and the jobs in which they occurred."""
    direct = [row for row in rows if not row.job.solve]
    few, many = ([row for row in direct if (len(row.job.parts) > 1) == mixed] for mixed in (False, True))
    sigma = [row for row in rows if row.job.solve == "noise"]
    tiny = [row for row in direct if (row.job.delta or 1) <= 1e-15 and row.job.parts[0].rate < 1]
    lines = [
        _most("relative width", 1e-6, "{:.2e}", direct, lambda r: width(r.results[MINE])),
        _most("time of one answer", 200, "{:.1f} ms", few, lambda r: 1e3 * r.results[MINE].seconds()),
        _most(
            "time of one answer, 50 and 100 kinds", 500, "{:.1f} ms", many, lambda r: 1e3 * r.results[MINE].seconds()
        ),
        _fewest("dp_accounting", 3, direct),
        _fewest("prv_accountant", 50, direct),
        _most("time at tol 1e-3", 75, "{:.0f} ms", direct, lambda r: 1e3 * r.results[COARSE].seconds()),
        _most("calibrate sigma, time", 200, "{:.0f} ms", sigma, lambda r: 1e3 * r.results[MINE].seconds()),
        _most(
            "calibrate sigma, above the least", 1e-6, "{:.1e}", sigma, lambda r: r.results[MINE].upper / r.job.truth - 1
        ),
        _most("error of eps, delta 1e-15 to 1e-100", 1e-6, "{:.1e}", tiny, _error),
        _most(
            "peak memory above import",
            300,
            "{:.0f} MiB",
            rows,
            lambda r: max(r.results[n].mib for n in (MINE, COARSE) if n in r.results),
        ),
    ]
    missed = [
        f"{row.job.name} ({name})" for row in rows for name in (MINE, COARSE) if not _right(row.job, row.results[name])
    ]
    lines.append(
        Target(
            "truth inside, calibrated value safe",
            "always, at both tolerances",
            ", ".join(missed) or "always",
            not missed,
        )
    )
    if start is not None:
        times = f"{start[0] / start[1]:.2f} ({1e3 * start[0]:.0f} ms against {1e3 * start[1]:.0f} ms)"
        lines.append(
            Target("start of `wpriv calibrate`, times its imports", "<= 1.5", times, start[0] <= 1.5 * start[1])
        )
    return [target for target in lines if target is not None]


def _right(job: Job, result: Result) -> bool:
    """Whether the bracket contains the true answer, or a calibrated value lies on its safe side."""
    if not job.solve:
        return holds(result, job.truth)
    return result.answered and (
        result.upper >= job.truth * (1 - SLACK) if job.solve == "noise" else result.upper <= job.truth * (1 + SLACK)
    )


def _most(
    figure: str, limit: float, show: str, rows: list[Measured], value: Callable[[Measured], float]
) -> Target | None:
    """Return the target that the largest value does not exceed the limit; None if there are no rows."""
    if not rows:
        return None
    row = max(rows, key=value)
    return Target(
        figure, f"<= {show.format(limit)}", f"{show.format(value(row))} ({row.job.name})", value(row) <= limit
    )


def _fewest(peer: str, limit: float, rows: list[Measured]) -> Target | None:
    """Return the target for the smallest speed-up over a peer."""
    ratios = [(ratio, row.job.name) for row in rows if (ratio := row.ratio(peer)) is not None]
    if not ratios:
        return None
    ratio, name = min(ratios)
    return Target(f"times faster than {peer}", f">= {limit:g}", f"{ratio:.3g} ({name})", ratio >= limit)


def _error(row: Measured) -> float:
    mine = row.results[MINE]
    return max(abs(mine.lower / row.job.truth - 1), abs(mine.upper / row.job.truth - 1))


def target_table(targets: list[Target]) -> str:
    return _table(
        [
            ["figure", "wanted", "worst found", "met"],
            *([t.figure, t.wanted, t.found, "yes" if t.met else "NO"] for t in targets),
        ]
    )


def write_csv(rows: list[Measured], path: Path) -> None:
    """Write one line for each program on each job, with seconds and MiB in full precision."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(
            [
                "job",
                "truth",
                "program",
                "lower",
                "upper",
                "cpu_seconds",
                "wall_seconds",
                "runs",
                "mib_above_import",
                "note",
            ]
        )
        for row in rows:
            for r in row.results.values():
                ends = [repr(r.lower), repr(r.upper)] if r.answered else ["", ""]
                times = [f"{r.seconds():.6g}", f"{r.seconds('wall'):.6g}"] if r.answered else ["", ""]
                out.writerow(
                    [row.job.name, repr(row.job.truth), r.program, *ends, *times, len(r.cpu), f"{r.mib:.1f}", r.note]
                )


def show(text: str, out: Path | None, name: str = "benchmarks") -> None:
    """Print a table and, with a folder, write it there as Markdown."""
    print(text, end="")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text(text, encoding="utf-8")


def publish(text: str, rows: list[dict[str, Any]], out: Path | None, name: str) -> int:
    """Print a table and, with a folder, write it there with its rows; return 1 if a target was missed, else 0."""
    show(text, out, name)
    if out is not None:
        with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, list(rows[0]))
            lines.writeheader()
            lines.writerows(rows)
    return 1 if any(row["met"] is False for row in rows) else 0


def preamble(limits: Limits) -> str:
    """Return an explanation of the tables."""
    return (
        f"Milliseconds are CPU time, one thread, the median of up to {limits.repeats} warm runs taken in turn; "
        "x is the time of a peer over that of wpriv. "
        f"Runs were cut at {limits.seconds:g} s or {limits.mib} MiB above the import. "
        "dp_accounting at its default grid and Opacus give an upper bound only; "
        "prv_accountant and Opacus run at an eps error of .01."
    )


def _peer(row: Measured, peer: str) -> list[str]:
    result, ratio = row.results.get(peer), row.ratio(peer)
    if result is None:
        return ["-", "-", "-"]
    if not result.answered:
        times = "-" if ratio is None else f"> {ratio:.0f}"
        return [_reason(result.note), "-", times]
    lower = f"{_number(result.lower)} .. " if 0 < result.lower < result.upper else ""
    wrong = "" if row.job.solve or result.upper >= row.job.truth * (1 - 1e-6) else " (below the truth)"
    return [f"{lower}{_number(result.upper)}{wrong}", _ms(result), f"{ratio:.3g}" if ratio else "-"]


def _reason(note: str) -> str:
    """Shorten a note: 'cut' and 'out of memory' are kept, an exception is named by its class."""
    kind = note.partition(":")[0].rpartition(".")[2]
    return note if note.startswith(("cut", "out of")) else {"NotImplementedError": "-"}.get(kind, f"fails: {kind}")


def _short(peer: str) -> str:
    return {"prv_accountant": "prv", "opacus": "Opacus PRV"}.get(peer, peer)


def _ms(result: Result) -> str:
    return f"{1e3 * result.seconds():.3g}" if result.answered else "-"


def _number(x: float) -> str:
    return f"{x:.7g}"


def _table(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
