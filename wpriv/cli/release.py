"""wpriv release"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wpriv.cli import flags, output
from wpriv.cli.flags import Text
from wpriv.cli.parsing import argument, option, switch
from wpriv.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from wpriv.releases.outputs import Output
    from wpriv.releases.release import Released

OUT, SPENDS, TABLE = "Outputs", "Budget", "Table and people"
Texts = list[str] | None
Json = dict[str, Any]
Rows = list[Json]


def command(
    recipe: Annotated[Text, argument("RECIPE", "Instead of flags, a recipe of kind release.")] = None,
    data: Annotated[
        Texts, option("FILE|URL", "CSV or Parquet files, which are one table; or a database.", group=TABLE)
    ] = None,
    table: Annotated[Text, option("NAME", "The table of a database.", group=TABLE)] = None,
    where: Annotated[Text, option("SQL", "A condition on rows of --table.", group=TABLE)] = None,
    query: Annotated[Text, option("SQL", "Instead: a SELECT, each row of which is of one person.", group=TABLE)] = None,
    public: Annotated[Texts, option("TABLE", "In --query: a table that holds nobody; repeatable.", group=TABLE)] = None,
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
    se: Annotated[
        Texts, option("[OUTPUT=]X", "Instead of --eps: the standard error of all outputs, or of one.", group=SPENDS)
    ] = None,
    delta: Annotated[
        Text, option("X", "delta of the whole release, as 1e-6; 0 for Laplace noise.", group=SPENDS)
    ] = None,
    noise: Annotated[Text, option("NAME", "gauss (default) or laplace.", group=SPENDS)] = None,
    key_delta: Annotated[Text, option("F", "Share of delta for unknown keys (default .1).", group=SPENDS)] = None,
    records: Annotated[
        Text, option("N", "About how many persons there are, if that is public; for warnings.", group=SPENDS)
    ] = None,
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
    diagnose: Annotated[
        bool, switch("--diagnose", "PRIVATE: print what the limits leave out of the rows; release nothing.")
    ] = False,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: flags.Quiet = False,
) -> None:
    """Release counts, sums, means, histograms and quantiles of a table with noise, private for each person.

    wpriv release --data stays.csv --person patient --count persons --eps 1 --delta 1e-6 --out report

    wpriv release --data stays.csv --person patient --by ward --keys A,B,C --max-groups 2 --max-rows 3 --mean days
    --bounds days=0:60 --eps 1 --delta 1e-6 --dry-run
    """
    from wpriv.releases import declaration
    from wpriv.releases.release import release

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet)
    given: Json = {
        "person": person, "max_groups": max_groups, "max_rows": max_rows, "by": by, "keys": _keys(keys), "other": other,
        "normalise": _words(normalise), "eps": eps, "delta": delta, "noise": flags.folded(noise),
        "key_delta": key_delta, "records": records, "distinct": distinct, "nonnegative": nonnegative, "seed": seed,
        "null": null, "table": table, "where": where, "query": query, "public": public,
    }  # fmt: skip
    numbers: Json = {
        "count": count, "sum": sum_, "mean": mean, "quantile": quantile, "histogram": histogram,
        "bounds": bounds, "grid": grid, "types": types, "weight": weight, "se": se,
    }  # fmt: skip
    if recipe is None:
        _require(data=data, person=person, delta=delta)
        asked = _Asked({name: texts or () for name, texts in numbers.items()})
        files, arguments = data, declaration.given(given) | {"outputs": asked.outputs(overall, of, outside)}
    else:
        every = {**given, **numbers, "overall": overall, "histogram_of": of, "outside": outside}
        flags.no_flags(recipe, flags.Job(), **{name: value for name, value in every.items() if value})
        files, arguments = declaration.of_recipe(recipe)
        if files is not None and data:
            raise UsageError(f"the recipe {recipe} names its data; leave out --data, or the key data of the recipe")
        files = files or data
        _require(data=files)
    about = _expected(expect, dry_run)
    if diagnose:
        _diagnose(files or (), arguments)
        return
    if out is None and not dry_run:
        raise UsageError("give --out DIR for the numbers and the ledger, or --dry-run")
    if mode == "quiet" and (dry_run or _several(arguments)):
        raise UsageError("--quiet prints the value of a single output; leave it out, or ask for one number")
    output.doing("finding the noise" if dry_run else "releasing")
    spending: Json = {"ledger": ledger, "total": total, "max_eps": max_eps}
    result = release(files, out=out, fresh=fresh, dry_run=dry_run, **spending, **arguments)
    _print(result, mode, out, dry_run, about)


def _diagnose(files: Sequence[str], arguments: Json) -> None:
    """Print facts about the rows on standard error, which nothing protects."""
    from wpriv.releases.release import diagnosed

    facts = diagnosed(files, **arguments)
    output.tell("PRIVATE: what follows is about the rows, and protected by nothing")
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        output.tell(f"  {name:<{width}}  {text}")


def _require(**given: object) -> None:
    for name, value in given.items():
        if not value:
            raise UsageError(f"release needs `{name}`; `wpriv release --help` shows examples")


def _expected(expect: str | None, dry_run: bool) -> float | None:
    about = flags.numbers(expect=expect)["expect"]
    if about is not None and not (dry_run and about > 0):
        raise UsageError("--expect is a number above 0, and needs --dry-run")
    return about


def _several(arguments: Json) -> bool:
    """Whether a release has more than one number."""
    outputs: Sequence[Output] = arguments["outputs"]
    return len(outputs) != 1 or arguments.get("by") is not None or len(outputs[0].bins()) != 1


def _words(text: str | None) -> list[str] | None:
    from wpriv.files import csv_tables

    return None if text is None else csv_tables.words(text)


def _keys(text: str | None) -> list[str] | str | None:
    return text if text == "unknown" else _words(text)


class _Asked:
    """The outputs that flags ask for, with what other flags say of columns and of outputs by name."""

    def __init__(self, given: Mapping[str, Sequence[str]]):
        self.given = given
        self.types = _pairs([part for text in given["types"] for part in text.split(",")], "types", "days=number")
        self.bounds = _pairs(given["bounds"], "bounds", "days=0:60")
        named = {name: [text for text in given[name] if "=" in text] for name in ("grid", "se")}
        self.plain = {name: [text for text in given[name] if "=" not in text] for name in ("grid", "se")}
        if twice := next((name for name, texts in self.plain.items() if len(texts) > 1), None):
            raise UsageError(f"`{twice}` is given twice; give it once, or with the name of what it is for")
        self.grid = _pairs(named["grid"], "grid", "days=.01")
        self.of_outputs = {"weight": _pairs(given["weight"], "weight", "mean=2")}
        self.of_outputs["se"] = _pairs(named["se"], "se", "persons=10")

    def outputs(self, overall: bool, of: str | None, outside: str | None) -> list[Output]:
        """The outputs, counts first."""
        from wpriv.releases import declaration

        rows: list[Json] = [{"count": kind} for kind in self.given["count"]]
        rows += [{"count": kind, "overall": True} for kind in self.given["count"] if overall]
        rows += [{kind: name, **self._column(name)} for kind in ("sum", "mean") for name in self.given[kind]]
        for kind, key, example in (("quantile", "at", "days=.5,.9"), ("histogram", "edges", "days=0,7,30")):
            for name, listed in (pair for text in self.given[kind] for pair in _pairs([text], kind, example).items()):
                about = self._column(name) if kind == "quantile" else {"of": of, "outside": outside}
                rows.append({kind: name, key: _words(listed), **about})
        return self._weighted([declaration.output(row, self.types) for row in rows])

    def _column(self, column: str) -> Json:
        """Bounds and grid of a column."""
        low, colon, high = self.bounds.get(column, "").partition(":")
        if not colon and column in self.bounds:
            raise UsageError(f"`bounds` are written as {column}=LO:HI; found {self.bounds[column]!r}")
        step = self.grid.get(column, next(iter(self.plain["grid"]), None))
        return {"bounds": [low, high] if colon else None, "grid": step}

    def _weighted(self, outputs: Sequence[Output]) -> list[Output]:
        """The outputs with weights and standard errors, which are named by kind (mean) or name (mean days)."""
        from wpriv.numerics.numbers import number

        known = sorted({name for each in outputs for name in (each.kind, each.name)})
        rows = list(outputs)
        for flag, texts in self.of_outputs.items():
            all_of_them = next(iter(self.plain.get(flag, ())), None)
            if unknown := next((name for name in texts if name not in known), None):
                raise UnknownName("output", unknown, known, place=f"`{flag}`")
            for place, each in enumerate(rows):
                text = texts.get(each.name, texts.get(each.kind, all_of_them))
                if text is not None:
                    value = number(text, f"`{flag}`")
                    rows[place] = replace(each, weight=value) if flag == "weight" else replace(each, se=value)
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


def _print(result: Released, mode: str, out: Path | None, dry_run: bool, about: float | None) -> None:
    from wpriv.files import csv_tables
    from wpriv.releases.release_folder import HEADER

    rows = result.rows
    if mode == "json":
        output.emit_json(result.answer)
    elif mode == "csv":
        output.emit(csv_tables.to_text(HEADER, result.table).rstrip("\n"))
    elif mode == "quiet":
        output.emit("" if rows[0]["value"] is None else str(rows[0]["value"]))
    else:
        _print_table(rows)
        end = f"; written: {out}" if result.files else ""
        output.emit_words(f"{'would be ' if dry_run else ''}{result.sentence()}{end}")
        facts = [*(_costs(result) if dry_run else ()), *result.in_all()]
        facts += result.expected(about) if about is not None else ()
        facts += [
            ("note", note)
            for note in dict.fromkeys(row["note"] for row in rows if row["half_width"] is not None)
            if note
        ]
        if facts:
            output.emit_facts(facts)
    if result.stored:
        output.say("note", f"released on {result.stored}; nothing was spent")
    output.warn(result.warnings)


def _print_table(rows: Rows) -> None:
    """A line for each number: key, output, value, half width and standard error."""
    from wpriv.releases.release_folder import cells, visible

    lines = []
    for row in rows:
        key, name, value, width, low, high, error, note = cells(row)
        shown, half = (
            "-" if each is None else f"{each:,}" if isinstance(each, int) else str(each) for each in (value, width)
        )
        if width is not None:
            about = f"+- {half} (95%)    standard error {error:g}"
        else:
            about = "; ".join(filter(None, (f"{low} to {high} (95%)" if low != "" else "", str(note))))
        lines.append((visible(str(key)), str(name), "-" if value is None else shown, about))
    widths = [max((len(line[place]) for line in lines), default=0) for place in range(3)]
    for key, name, value, about in lines:
        parts = [key.ljust(widths[0])] * (widths[0] > 0) + [name.ljust(widths[1]), value.rjust(widths[2]), about]
        output.emit("  ".join(parts).rstrip())


def _costs(result: Released) -> list[tuple[str, str]]:
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
        shown = ", ".join(f"{row['persons']}: {row['probability']:.4g}" for row in keys["shown"])
        facts.append(("keys", f"persons of a key, and the probability that it is shown: {shown}"))
    return facts
