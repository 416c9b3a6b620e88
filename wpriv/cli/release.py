"""wpriv release"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wpriv.cli import flags, output
from wpriv.cli.flags import Text
from wpriv.cli.parsing import option, switch
from wpriv.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from wpriv.releases.outputs import Output
    from wpriv.releases.release import Released

OUT, SPENDS, TABLE = "Outputs", "Budget", "Table and people"
Texts = list[str] | None
Rows = list[dict[str, Any]]


def command(
    data: Annotated[Texts, option("FILE", "A CSV file with a header; repeatable, as one table.", group=TABLE)] = None,
    person: Annotated[
        Text, option("COLUMN", "The column that names the person of a row; row: each row is one.", group=TABLE)
    ] = None,
    max_groups: Annotated[Text, option("L", "Keys that one person may count in.", group=TABLE)] = None,
    max_rows: Annotated[Text, option("M", "Rows of one person that count in a key.", group=TABLE)] = None,
    by: Annotated[Text, option("COLUMN", "A number for each key in this column; needs --keys.", group=TABLE)] = None,
    keys: Annotated[
        Text, option("A,B|unknown", "The keys to report, or those with enough persons.", group=TABLE)
    ] = None,
    other: Annotated[Text, option("NAME", "A key for the rows of all undeclared keys.", group=TABLE)] = None,
    normalise: Annotated[Text, option("FORMS", "Of keys: nfc, strip, casefold.", group=TABLE)] = None,
    types: Annotated[Texts, option("COLUMN=TYPE", "integer, number or date; repeatable.", group=TABLE)] = None,
    null: Annotated[Texts, option("TEXT", "Text of a missing cell, as NA; repeatable.", group=TABLE)] = None,
    distinct: Annotated[bool, switch("--distinct", "Drop equal rows of a person.", TABLE)] = False,
    count: Annotated[Texts, option("persons|rows", "Count them; repeatable.", group=OUT)] = None,
    sum_: Annotated[Texts, option("COLUMN", "Sum of a column; needs --bounds.", "--sum", group=OUT)] = None,
    mean: Annotated[Texts, option("COLUMN", "Mean of a column; needs --bounds.", group=OUT)] = None,
    quantile: Annotated[Texts, option("COLUMN=.5,.9", "Quantiles of a column; needs --bounds.", group=OUT)] = None,
    histogram: Annotated[Texts, option("COLUMN=E0,E1", "Rows between edges of a column.", group=OUT)] = None,
    of: Annotated[
        Text, option("persons|rows", "What a histogram counts (default rows).", "--histogram-of", group=OUT)
    ] = None,
    outside: Annotated[Text, option("HOW", "Values beyond the edges: drop (default), clip or bins.", group=OUT)] = None,
    overall: Annotated[bool, switch("--overall", "With --by: the counts of all keys together as well.", OUT)] = False,
    bounds: Annotated[
        Texts, option("COLUMN=LO:HI", "Bounds to which values are clipped, chosen without the data.", group=OUT)
    ] = None,
    grid: Annotated[Texts, option("[COLUMN=]STEP", "Spacing on which values are rounded, as .01.", group=OUT)] = None,
    weight: Annotated[Texts, option("OUTPUT=W", "Share of an output, as mean=2 (default 1).", group=OUT)] = None,
    nonnegative: Annotated[bool, switch("--nonnegative", "Show counts below 0 as 0.", OUT)] = False,
    eps: Annotated[Text, option("X", "eps of the whole release.", group=SPENDS)] = None,
    delta: Annotated[
        Text, option("X", "delta of the whole release, as 1e-6; 0 for Laplace noise.", group=SPENDS)
    ] = None,
    noise: Annotated[Text, option("NAME", "gauss (default) or laplace.", group=SPENDS)] = None,
    key_delta: Annotated[Text, option("F", "Share of delta for unknown keys (default .1).", group=SPENDS)] = None,
    ledger: Annotated[
        Text, option("FILE|URL", "Spend from it before any row is read (default ledger.jsonl in --out).", group=SPENDS)
    ] = None,
    total: Annotated[
        bool, switch("--total", "eps and delta are those of the ledger and this together.", SPENDS)
    ] = False,
    max_eps: Annotated[Text, option("X", "Refuse where the ledger would exceed X (exit 1).", group=SPENDS)] = None,
    seed: Annotated[Text, option("K", "Repeatable noise, for tests: NOT PRIVATE.", group=SPENDS)] = None,
    out: Annotated[Path | None, option("DIR", "Folder of the numbers; the same release there is shown again.")] = None,
    fresh: Annotated[bool, switch("--fresh", "Draw and spend anew where --out holds this release.")] = False,
    dry_run: Annotated[bool, switch("--dry-run", "Read no row: print noise, guarantee and cost.")] = False,
    expect: Annotated[Text, option("N", "With --dry-run: relative errors of numbers about N.")] = None,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: flags.Quiet = False,
) -> None:
    """Release counts, sums, means, histograms and quantiles of a table with noise, private for each person.

    wpriv release --data stays.csv --person patient --count persons --eps 1 --delta 1e-6 --out report

    wpriv release --data stays.csv --person patient --by ward --keys A,B,C --max-groups 2 --max-rows 3 --mean days
    --bounds days=0:60 --eps 1 --delta 1e-6 --dry-run
    """
    from wpriv.releases.release import release

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet)
    given = {
        **{"person": person, "max_groups": max_groups, "max_rows": max_rows, "by": by, "other": other, "eps": eps},
        **{"delta": delta, "noise": flags.folded(noise), "key_delta": key_delta, "max_eps": max_eps, "seed": seed},
        **{"ledger": ledger, "null": null},
        **{
            name: True
            for name, value in (("distinct", distinct), ("nonnegative", nonnegative), ("total", total))
            if value
        },
    }
    arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    declared = _Declared(bounds or (), grid or (), types or (), weight or ())
    outputs = [
        *_counts(count or (), overall),
        *(declared.column("sum", name) for name in sum_ or ()),
        *(declared.column("mean", name) for name in mean or ()),
        *(declared.quantile(text) for text in quantile or ()),
        *(declared.histogram(text, of or "rows", outside or "drop") for text in histogram or ()),
    ]
    for name, value in (("data", data), ("person", person), ("eps", eps), ("delta", delta)):
        if not value:
            raise UsageError(f"release needs `{name}`; `wpriv release --help` shows examples")
    if out is None and not dry_run:
        raise UsageError("give --out DIR for the numbers and the ledger, or --dry-run")
    several = len(outputs) != 1 or by is not None or histogram or any("," in text for text in quantile or ())
    if mode == "quiet" and (several or dry_run):
        raise UsageError("--quiet prints the value of a single output; leave it out, or ask for one number")
    about = flags.numbers(expect=expect)["expect"]
    if about is not None and not (dry_run and about > 0):
        raise UsageError("--expect is a number above 0, and needs --dry-run")
    if keys is not None:
        arguments["keys"] = "unknown" if keys == "unknown" else _words(keys)
    if normalise is not None:
        arguments["normalise"] = _words(normalise)
    outputs = declared.weighted(outputs)
    result = release(list(data or ()), outputs=outputs, out=out, fresh=fresh, dry_run=dry_run, **arguments)
    _print(result, mode, out, dry_run)
    if about is not None and mode == "text":
        errors = [(row["name"], row["standard_error"]) for row in result.rows]
        known = [(name, error) for name, error in errors if isinstance(error, float)]
        output.emit_facts([(f"{name} of {about:g}", f"{error / about:.2%} standard error") for name, error in known])


def _words(text: str) -> list[str]:
    from wpriv.files import csv_tables

    return csv_tables.words(text)


def _counts(kinds: Sequence[str], overall: bool) -> list[Output]:
    from wpriv.releases.outputs import Count

    alone: list[Output] = [Count(of=kind) for kind in kinds]
    return [*alone, *(Count(of=kind, overall=True) for kind in kinds)] if overall else alone


class _Declared:
    """What flags say about columns and outputs by name: bounds, grids, types and weights."""

    def __init__(self, bounds: Sequence[str], grid: Sequence[str], types: Sequence[str], weight: Sequence[str]):
        self.bounds = _pairs(bounds, "bounds", "days=0:60")
        self.types = _pairs([part for text in types for part in text.split(",")], "types", "days=number")
        named = [text for text in grid if "=" in text]
        plain = [text for text in grid if "=" not in text]
        self.grid, self.everywhere = _pairs(named, "grid", "days=.01"), plain[0] if plain else None
        self.weight = _pairs(weight, "weight", "mean=2")

    def _type(self, column: str) -> dict[str, object]:
        kind = self.types.get(column)
        if kind not in (None, "integer", "number", "date", "text"):
            raise UnknownName("type", str(kind), ("integer", "number", "date", "text"), place="`types`")
        if kind == "text":
            raise UsageError(f"{column} is text; give `types` {column}=number")
        return {"dates": kind == "date"}

    def _about(self, column: str) -> dict[str, Any]:
        low, colon, high = self.bounds.get(column, "").partition(":")
        ends = {"lo": low, "hi": high} if colon else {}
        if not colon and column in self.bounds:
            raise UsageError(f"`bounds` are written as {column}=LO:HI; found {self.bounds[column]!r}")
        kind = self.types.get(column)
        whole = {} if kind in (None, "date") else {"whole": kind == "integer"}
        return {**ends, **self._type(column), **whole, "step": self.grid.get(column, self.everywhere)}

    def column(self, kind: str, name: str) -> Output:
        from wpriv.releases.outputs import Mean, Sum

        made: Output = (Sum if kind == "sum" else Mean)(name, **self._about(name))
        return made

    def quantile(self, text: str) -> Output:
        from wpriv.releases.outputs import Quantile

        ((name, shares),) = _pairs([text], "quantile", "days=.5,.9").items()
        return Quantile(name, **self._about(name), at=_words(shares))

    def histogram(self, text: str, of: str, outside: str) -> Output:
        from wpriv.releases.outputs import BinCounts

        ((name, edges),) = _pairs([text], "histogram", "days=0,7,30").items()
        dates = bool(self._type(name)["dates"])
        return BinCounts(column=name, edges=_words(edges), of=of, outside=outside, dates=dates)

    def weighted(self, outputs: Sequence[Output]) -> list[Output]:
        """The outputs with their weights, which are named by kind (mean) or name (mean days)."""
        known = [name for each in outputs for name in (each.kind, each.name)]
        for name in self.weight:
            if name not in known:
                raise UnknownName("output", name, sorted(set(known)), place="`weight`")
        from wpriv.numerics.numbers import number

        rows = []
        for each in outputs:
            text = self.weight.get(each.name, self.weight.get(each.kind))
            rows.append(each if text is None else dataclasses.replace(each, weight=number(text, "`weight`")))
        return rows


def _pairs(texts: Sequence[str], name: str, example: str) -> dict[str, str]:
    """Texts ``NAME=VALUE`` by name."""
    pairs: dict[str, str] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column or not value:
            raise UsageError(f"`{name}` is written as in {example}; found {text[:80]!r}")
        if column in pairs:
            raise UsageError(f"`{name}` of {column} is given twice; give it once")
        pairs[column] = value
    return pairs


def _print(result: Released, mode: str, out: Path | None, dry_run: bool) -> None:
    from wpriv.files import csv_tables

    rows: Rows = result.rows
    if mode == "json":
        output.emit_json(result.answer)
    elif mode == "csv":
        output.emit(csv_tables.to_text(tuple(result.table[0]) if result.table else (), result.table).rstrip("\n"))
    elif mode == "quiet":
        output.emit("" if rows[0]["value"] is None else str(rows[0]["value"]))
    else:
        _print_table(rows)
        end = f"; written: {out}" if result.files else ""
        output.emit_words(f"{'would be ' if dry_run else ''}{result.sentence()}{end}")
        if dry_run:
            _print_costs(result)
    if result.stored:
        output.say("note", f"released on {result.stored}; nothing was spent")
    output.warn(result.warnings)


def _print_table(rows: Rows) -> None:
    """A line for each number: key, output, value, half width and standard error."""
    lines = []
    for row in rows:
        value = row["value"]
        shown = "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
        key = " ".join(str(row[name]) for name in ("key", "bin") if row.get(name) is not None)
        if row["half_width"] is not None:
            width = row["half_width"]
            about = f"+- {width:,} (95%)" if isinstance(width, int) else f"+- {width} (95%)"
            about += f"    standard error {row['standard_error']:g}"
        else:
            low, high = row["interval"] or ("", "")
            about = "; ".join(filter(None, (f"{low} to {high} (95%)" if low != "" else "", row["note"])))
        lines.append((key, str(row["name"]), shown, about))
    widths = [max((len(line[place]) for line in lines), default=0) for place in range(3)]
    for key, name, value, about in lines:
        parts = [key.ljust(widths[0])] * (widths[0] > 0) + [name.ljust(widths[1]), value.rjust(widths[2]), about]
        output.emit("  ".join(parts).rstrip())


def _print_costs(result: Released) -> None:
    """What a release would draw and spend: the noise of each output, the threshold, and the lines of the ledger."""
    facts = []
    for step in result.guarantee.process.describe():
        about = ", ".join(
            f"{name} {value:g}" for name, value in step.items() if isinstance(value, (int, float)) and name != "n"
        )
        facts.append(("ledger", f"{step['n']} x {step['mech']}: {about}"))
    keys = result.answer["keys"]
    if isinstance(keys, dict) and keys["kind"] == "unknown":
        facts.append(("keys", f"shown where the noisy count of persons is above {keys['threshold']}"))
    output.emit_facts(facts)
