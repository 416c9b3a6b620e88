"""Print guarantees: a headline with details below it, tables, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wpriv.accounting import adaptive_history, basis, budget, evaluate
from wpriv.accounting.build_process import DescribedProcess
from wpriv.cli import flags, output
from wpriv.core.guarantee import CLAIM_WORDS, Guarantee, unit_notes
from wpriv.files import csv_tables
from wpriv.files.durable_writes import plain
from wpriv.numerics.numbers import short, text

TABLE_SCHEMA = "wpriv.table/1"
CSV_COLUMNS = (
    *("accountant", "notion", "claim", "epsilon", "epsilon_lower", "epsilon_upper"),
    *("delta", "delta_lower", "delta_upper", "adjacency", "process", "source", "warnings"),
)
ABOUT = ("process", "in all", "sampling", "neighbours", "runs")
MU_COLUMNS = ("mu", "mu_lower", "mu_upper", "mu_fpr", "mu_regret")


def print_answer(
    process: DescribedProcess,
    names: list[str],
    question: dict[str, Any],
    limit: float | None,
    mode: str,
    explain: bool,
    file: str | None,
) -> None:
    """Print the answers of accountants to the question of `wpriv budget`, and set the exit code of a limit on eps."""
    single = not flags.several(names)
    if single:
        # with a limit on eps, the gate says that a figure without a delta is no guarantee
        row = budget.answer(
            process, names[0], attack=mode in ("text", "json"), beside_others=limit is not None, **question
        )
        rows, refusals = [row], list[evaluate.Refusal]()
    else:
        rows, refusals = budget.by_accountants(process, names, **question)
    if limit is not None:
        rows = budget.narrow_to_decide(process, rows, limit, question.get("tol"))
    rows = [evaluate.with_warnings(row, budget.plausibility_warnings(row, process.records)) for row in rows]
    rows = [row.with_extra(explain=basis.explain(row)) for row in rows] if explain else rows

    def show() -> None:
        if single:
            print_guarantee(rows[0], mode, limit)
            return
        refused = [{"accountant": refusal.accountant, "reason": refusal.reason} for refusal in refusals]
        print_guarantees(rows, refused, mode, limit)

    output.print_with_certificate(show, lambda: rows[0], file)
    if limit is not None:
        budget.check_max_eps(rows, limit)


def print_guarantee(row: Guarantee, mode: str, limit: float | None = None) -> None:
    """Print one guarantee; warnings go to standard error."""
    if mode == "quiet":
        calibrated = row.extra.get("calibrated")
        output.emit(f"{calibrated['value']:.13g}" if calibrated else text(row.answered()[1].safe, up=True, limit=limit))
    elif mode == "json":
        output.emit_json(row.as_dict())
    elif mode == "csv":
        output.emit(_csv([row]))
    else:
        output.emit_bold(row.headline(limit))
        output.emit_facts([*row.facts(limit), *_more_facts(row)])
        if attacks := row.attacks():
            output.emit("")
            header = ("best membership attack", "at least", "at most")
            output.emit_table(header, attacks, indent=2)
        _print_explanation(row)
    _print_warnings([row])


def print_guarantees(
    rows: Sequence[Guarantee], refused: Sequence[Mapping[str, str]], mode: str, limit: float | None = None
) -> None:
    """Print the answers of several accountants to one question."""
    notes = unit_notes(row.notion for row in rows)
    if mode == "json":
        output.emit_rows([row.as_dict() for row in rows], TABLE_SCHEMA, refused=refused, notes=notes)
    elif mode == "csv":
        output.emit(_csv(rows))
    else:
        first = next((row for row in rows if "order" not in row.extra), rows[0])
        output.emit_bold(f"{first.answered()[0]} at {first.at_words().removeprefix('at ')} by {len(rows)} accountants")
        readings = dict.fromkeys(note for row in rows for note in row.extra.get("reading", []))
        output.emit_facts([*_circumstances(first), *(("read as", note) for note in readings)])
        _print_comparison(rows, limit)
        for row in rows:
            _print_explanation(row)
        say_refused(refused)
    output.say("note", *notes)
    _print_warnings(rows)


def print_beside(rows: Sequence[Guarantee]) -> None:
    """Print the first guarantee of a training with its facts, and the others beside it in a table; nothing of none."""
    for row in rows[:1]:
        output.emit_bold(row.headline())
        output.emit_facts(row.facts())
    if len(rows) > 1:
        _print_comparison(rows)


def say_refused(refused: Sequence[Mapping[str, str]]) -> None:
    """Print a note on accountants without an answer: why there is none of one, and the names of several."""
    if len(refused) == 1:
        output.say("note", f"{refused[0]['accountant']} has no answer: {refused[0]['reason']}")
    elif refused:
        names = ", ".join(each["accountant"] for each in refused)
        output.say("note", f"no answer by {names} (--json has the reasons)")


def print_curve(rows: Sequence[Guarantee], mode: str) -> None:
    """Print a privacy curve, delta as a function of eps."""
    if mode == "json":
        output.emit_rows([row.as_dict() for row in rows], TABLE_SCHEMA)
    elif mode == "csv":
        output.emit(_csv(rows))
    else:
        first = rows[0]
        claim = CLAIM_WORDS.get(first.claim, first.claim)
        output.emit_bold(f"delta over eps ({claim}) by {first.accountant}")
        output.emit_facts([*_circumstances(first), *(("read as", note) for note in first.extra["reading"])])
        lowers = ["" if row.delta.lower is None else text(row.delta.lower, up=False) for row in rows]
        # of an upper bound no lower one is known, unless some other accountant gives it
        lowers = [""] * len(rows) if first.claim == "upper-bound" and set(lowers) == {"0"} else lowers
        body = [
            [short(row.epsilon.safe), low, text(row.delta.safe, up=True)] for row, low in zip(rows, lowers, strict=True)
        ]
        output.emit("")
        output.emit_table(["eps", "delta at least", "delta at most"], body)
    output.warn(dict.fromkeys(line for row in rows for line in row.warnings))


def print_trade_off(rows: Sequence[Mapping[str, Any]], described: DescribedProcess, accountant: str, mode: str) -> None:
    """Print points of a trade-off curve: the least false-negative rate of any attack at each false-positive rate."""
    columns, process = list(rows[0]), described.process
    if mode == "text":
        first = rows[0]
        regret = f", regret at most {text(first['mu_regret'], up=True, digits=2)}" if first["mu_regret"] else ""
        gauss = f"mu-GDP at mu = {text(first['mu_upper'], up=True)}{regret}" if first["gauss"] is not None else ""
        output.emit_bold(
            f"false-negative rate of the best attack over its false-positive rate, bounded by {accountant}"
        )
        facts = [*process.facts(), *(("read as", note) for note in described.notes)]
        output.emit_facts([*facts, ("guess", "an attack that only guesses"), ("gauss", gauss or "no finite mu")])
        shown = [name for name in columns if not name.startswith("mu_")]
        output.emit("")
        ups = [name.endswith("_upper") or name == "fpr" for name in shown]
        values = ([row[name] for name in shown] for row in rows)
        cells = [["" if v is None else text(v, up=up) for v, up in zip(row, ups, strict=True)] for row in values]
        output.emit_table(shown, cells)
    elif mode == "json":
        relation = {"adjacency": process.adjacency, "group": process.group}
        about = {"accountant": accountant, **relation, "process": process.describe()}
        output.emit_rows([{**about, **row} for row in rows], TABLE_SCHEMA)
    else:
        output.emit(csv_tables.to_text(columns, [plain(row) for row in rows]).rstrip("\n"))
    output.warn([*process.caveats(), *budget.runs_in_advance(described, accountant)])


def _circumstances(row: Guarantee) -> list[tuple[str, str]]:
    """What a guarantee is about, without what it rests on."""
    return [(name, words) for name, words in row.facts() if name in ABOUT]


def _print_comparison(rows: Sequence[Guarantee], limit: float | None = None) -> None:
    """Several accountants on one process; notions, which share no units, have tables of their own."""
    name, _ = rows[0].answered()
    for notion in dict.fromkeys(row.notion for row in rows):
        body = []
        for row in (row for row in rows if row.notion == notion):
            bracket = row.answered()[1]
            low = "" if row.claim == "exact" or not bracket.lower else text(bracket.lower, up=False)
            claim = CLAIM_WORDS.get(row.claim, row.claim).partition(",")[0]
            body.append([row.accountant, claim, text(bracket.safe, up=True, limit=limit), low])
        output.emit("")
        answer = name if notion == "approximate-dp" else f"{name} [{notion}]"
        output.emit_table(["accountant", "claim", answer, "at least"], body)


def _csv(rows: Sequence[Guarantee]) -> str:
    """A header and one line for each row; the process is JSON in one cell."""
    columns = CSV_COLUMNS + (("group",) if any(row.process.group > 1 for row in rows) else ())
    columns += MU_COLUMNS if any("mu" in row.extra for row in rows) else ()
    body = []
    for row in rows:
        data = plain(row.as_dict())
        body.append(data | {"process": json.dumps(data["process"]), "warnings": "; ".join(data["warnings"])})
    return csv_tables.to_text(columns, body).rstrip("\n")


def _print_explanation(row: Guarantee) -> None:
    if "explain" in row.extra:
        output.emit("")
        output.emit_words(*basis.lines(row.extra["explain"]))


def _print_warnings(rows: Sequence[Guarantee]) -> None:
    """Print warnings that all rows share once, and the others with the name of their accountant."""
    first = dict.fromkeys(rows[0].warnings)
    shared = [line for line in first if len(rows) > 1 and all(line in row.warnings for row in rows)]
    output.warn(shared)
    for row in rows:
        for line in row.warnings:
            if line not in shared:
                named = len(rows) == 1 or line.startswith(row.accountant)
                output.say("warning", line if named else f"{row.accountant}: {line}")


def _more_facts(row: Guarantee) -> list[tuple[str, str]]:
    """What rare questions add: several runs, a history, other formulas; their modules load where they are asked."""
    extra = row.extra
    facts = []
    if "one_run" in extra.get("repeats", {}):
        from wpriv.accounting import best_of_runs

        facts += best_of_runs.facts(extra["repeats"], row.answered()[0])
    if "room" in extra:
        facts += adaptive_history.facts(extra["room"])
    if "parameters" in extra:
        lines = adaptive_history.lines(extra["parameters"])
        facts += [("parameters", line.removeprefix("parameters ")) for line in lines]
    if reading := extra.get("attack_reading"):
        paper, bound = text(reading["paper"], up=True), text(reading["bound"], up=True)
        facts.append(("attack", f"chance of a right guess as the paper reads eps, 1/(1 + e^-eps): {paper}"))
        facts.append(("attack", f"bound on it by {row.notion}: {bound} ({reading['why']})"))
    return facts + _classical_formulas(row)


def _classical_formulas(row: Guarantee) -> list[tuple[str, str]]:
    """The noise that older formulas ask for, beside the calibrated one."""
    facts = []
    for other in row.extra.get("classical", []):
        parameter, smallest = (row.extra["calibrated"][key] for key in ("parameter", "value"))
        noise = other[parameter]
        ratio = "" if noise is None else f", {noise / smallest:.4g} times the least"
        value = "no value" if noise is None else f"{parameter} = {text(noise, up=True)}"
        validity = "" if other["valid"] else "NOT VALID HERE: "
        facts.append(("formula", f"{value}{ratio}, by {other['formula']}; {validity}{other['note']}"))
    return facts
