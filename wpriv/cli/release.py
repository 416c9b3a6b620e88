"""wpriv release"""

# ruff: noqa: RUF009 -- _flag() and _switch() make a field
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.cli import flags, output
from wpriv.cli.flags import Text
from wpriv.cli.parsing import argument, expand_record, option, switch
from wpriv.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from wpriv.releases.outputs import Output
    from wpriv.releases.release import Released

OUT, SPENDS, TABLE = "Outputs", "Budget", "Table and people"
Texts = list[str] | None
Json = dict[str, Any]
Rows = list[Json]
VALUES = ("sum", "mean", "quantile")  # outputs of columns with bounds
# the flags that the verb takes as they are
AS_GIVEN = (
    *("table", "where", "query", "public", "person", "max_groups", "max_rows", "by", "other", "null", "distinct"),
    *("nonnegative", "eps", "delta", "key_delta", "records", "seed"),
)


def _flag(metavar: str, help: str, group: str) -> Any:
    return field(default=None, metadata={"flag": option(metavar, help, group=group)})


def _switch(name: str, help: str, group: str) -> Any:
    return field(default=False, metadata={"flag": switch(name, help, group)})


@dataclass(frozen=True)
class Asked:
    """The flags that say what is released, as text; a recipe can hold the same."""

    table: Text = _flag("NAME", "The table of a database.", TABLE)
    where: Text = _flag("SQL", "A condition on rows of --table.", TABLE)
    query: Text = _flag("SQL", "Instead: a SELECT, each row of which is of one person.", TABLE)
    public: Texts = _flag("TABLE", "In --query: a table that holds nobody; repeatable.", TABLE)
    person: Text = _flag("COLUMN", "The column that names the person of a row; row: each row is one.", TABLE)
    max_groups: Text = _flag("L", "Keys that one person may count in.", TABLE)
    max_rows: Text = _flag("M", "Rows of one person that count in a key.", TABLE)
    by: Text = _flag("COLUMN", "A number for each key in this column; needs --keys.", TABLE)
    keys: Text = _flag("A,B|unknown", "The keys to report, or those with enough persons.", TABLE)
    other: Text = _flag("NAME", "A key for the rows of all undeclared keys.", TABLE)
    normalise: Text = _flag("FORMS", "Of keys: nfc, strip, casefold.", TABLE)
    types: Texts = _flag("COLUMN=TYPE", "integer, number or date; repeatable.", TABLE)
    null: Texts = _flag("TEXT", "Text of a missing cell, as NA; repeatable.", TABLE)
    distinct: bool = _switch("--distinct", "Drop equal rows of a person.", TABLE)
    count: Texts = _flag("persons|rows", "Count them; repeatable.", OUT)
    sum: Texts = _flag("COLUMN", "Sum of a column; needs --bounds.", OUT)
    mean: Texts = _flag("COLUMN", "Mean of a column; needs --bounds.", OUT)
    quantile: Texts = _flag("COLUMN=.5,.9", "Quantiles of a column; needs --bounds.", OUT)
    histogram: Texts = _flag("COLUMN=E0,E1", "Rows between edges of a column.", OUT)
    histogram_of: Text = _flag("persons|rows", "What a histogram counts (default rows).", OUT)
    outside: Text = _flag("HOW", "Values beyond the edges: drop (default), clip or bins.", OUT)
    overall: bool = _switch("--overall", "With --by: the counts of all keys together as well.", OUT)
    bounds: Texts = _flag("COLUMN=LO:HI", "Bounds to which values are clipped, chosen without the data.", OUT)
    grid: Texts = _flag("[COLUMN=]STEP", "Spacing on which values are rounded, as .01.", OUT)
    weight: Texts = _flag("OUTPUT=W", "Share of an output, as mean=2 (default 1).", OUT)
    nonnegative: bool = _switch("--nonnegative", "Show counts below 0 as 0.", OUT)
    eps: Text = _flag("X", "eps of the whole release.", SPENDS)
    se: Texts = _flag("[OUTPUT=]X", "Instead of --eps: the standard error of all outputs, or of one.", SPENDS)
    delta: Text = _flag("X", "delta of the whole release, as 1e-6; 0 for Laplace noise.", SPENDS)
    noise: Text = _flag("NAME", "gauss (default) or laplace.", SPENDS)
    key_delta: Text = _flag("F", "Share of delta for unknown keys (default .1).", SPENDS)
    records: Text = _flag("N", "About how many persons there are, if that is public; for warnings.", SPENDS)
    seed: Text = _flag("K", "Repeatable noise, for tests: NOT PRIVATE.", SPENDS)

    def arguments(self) -> Json:
        """The keywords of the verb ``release``.

        Raises:
            UsageError: a flag is written wrongly, or is about an output that is not asked for.
        """
        from wpriv.releases import declaration

        types = _pairs([part for text in self.types or () for part in text.split(",")], "types", "days=number")
        keys = self.keys if self.keys == "unknown" else _words(self.keys)
        words = {"keys": keys, "normalise": _words(self.normalise), "noise": flags.folded(self.noise)}
        given = {name: getattr(self, name) for name in AS_GIVEN} | words
        return declaration.given(given) | {"outputs": self._outputs(types), "typed": tuple(types)}

    def _outputs(self, types: Mapping[str, str]) -> list[Output]:
        """The outputs, counts first."""
        from wpriv.releases import declaration

        counts = self.count or ()
        rows: list[Json] = [{"count": of} for of in counts]
        rows += [{"count": of, "overall": True} for of in counts if self.overall]
        rows += [{"sum": name} for name in self.sum or ()] + [{"mean": name} for name in self.mean or ()]
        rows += [{"quantile": name, "at": at} for name, at in _listed(self.quantile, "quantile", "days=.5,.9")]
        rows += [
            {"histogram": name, "edges": edges, "of": self.histogram_of, "outside": self.outside}
            for name, edges in _listed(self.histogram, "histogram", "days=0,7,30")
        ]
        for flag, kind in (("overall", "count"), ("histogram_of", "histogram"), ("outside", "histogram")):
            if getattr(self, flag) and not getattr(self, kind):
                raise UsageError(f"`{flag}` is about a {kind}; ask for one with `{kind}`, or leave it out")
        self._add_columns(rows)
        return self._weighted([declaration.output(row, types) for row in rows])

    def _add_columns(self, rows: Sequence[Json]) -> None:
        """Add bounds and grids to the outputs of columns; refuse those of columns without such an output."""
        bounds = _pairs(self.bounds or (), "bounds", "days=0:60")
        grid, step = _named(self.grid, "grid", "days=.01")
        columns = {str(row[kind]): row for row in rows for kind in VALUES if kind in row}
        for flag, pairs in (("bounds", bounds), ("grid", grid)):
            if unused := next((name for name in pairs if name not in columns), None):
                listed = ", ".join(columns) or "none"
                raise UsageError(f"`{flag}` of {unused}: no sum, mean or quantile is of this column; found {listed}")
        for row in rows:
            if column := next((str(row[kind]) for kind in VALUES if kind in row), None):
                low, colon, high = bounds.get(column, "").partition(":")
                if not colon and column in bounds:
                    raise UsageError(f"`bounds` are written as {column}=LO:HI; found {bounds[column]!r}")
                row |= {"bounds": [low, high] if colon else None, "grid": grid.get(column, step)}

    def _weighted(self, outputs: list[Output]) -> list[Output]:
        """The outputs with weights and standard errors, which are named by kind (mean) or name (mean days)."""
        from wpriv.numerics.numbers import number

        known = sorted({name for each in outputs for name in (each.kind, each.name)})
        weights = _pairs(self.weight or (), "weight", "mean=2")
        errors, error = _named(self.se, "se", "persons=10")
        for flag, texts, of_all in (("weight", weights, None), ("se", errors, error)):
            if unknown := next((name for name in texts if name not in known), None):
                raise UnknownName("output", unknown, known, place=f"`{flag}`")
            for place, each in enumerate(outputs):
                text = texts.get(each.name, texts.get(each.kind, of_all))
                if text is not None:
                    value = number(text, f"`{flag}`")
                    outputs[place] = replace(each, weight=value) if flag == "weight" else replace(each, se=value)
        return outputs


@expand_record("asked", Asked, lambda name: Asked.__dataclass_fields__[name].metadata["flag"])
def command(
    recipe: Text = argument("RECIPE", "Instead of flags, a recipe of kind release.", default=None),
    data: Texts = option("FILE|URL", "CSV or Parquet files, which are one table; or a database.", group=TABLE),
    asked: Asked = Asked(),
    ledger: Text = option(
        "FILE|URL", "Spend from it before any row is read (default ledger.jsonl in --out).", group=SPENDS
    ),
    total: bool = switch("--total", "eps and delta are those of the ledger and this together.", SPENDS),
    max_eps: Text = option("X", "Refuse where the ledger would exceed X (exit 1).", group=SPENDS),
    out: Path | None = option("DIR", "Folder of the numbers; the same release there is shown again."),
    fresh: bool = switch("--fresh", "Draw and spend anew where --out holds this release."),
    dry_run: bool = switch("--dry-run", "Read no row: print noise, guarantee and cost."),
    expect: Text = option("N", "With --dry-run: relative errors of numbers about N."),
    diagnose: bool = switch("--diagnose", "PRIVATE: print what the limits leave out of the rows; release nothing."),
    as_json: bool = flags.JSON,
    as_csv: bool = flags.CSV,
    quiet: bool = flags.QUIET,
) -> None:
    """Release counts, sums, means, histograms and quantiles of a table with noise, private for each person.

    wpriv release --data stays.csv --person patient --count persons --eps 1 --delta 1e-6 --out report

    wpriv release --data stays.csv --person patient --by ward --keys A,B,C --max-groups 2 --max-rows 3 --mean days
    --bounds days=0:60 --eps 1 --delta 1e-6 --dry-run
    """
    from wpriv.releases.release import release

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet)
    files, arguments = _declared(recipe, data, asked)
    about = flags.numbers(expect=expect)["expect"]
    if about is not None and not (dry_run and about > 0):
        raise UsageError("--expect is a number above 0, and needs --dry-run")
    if diagnose:
        _diagnose(files, arguments)
        return
    if out is None and not dry_run:
        raise UsageError("give --out DIR for the numbers and the ledger, or --dry-run")
    if mode == "quiet" and (dry_run or _several(arguments)):
        raise UsageError("--quiet prints the value of a single output; leave it out, or ask for one number")
    output.doing("finding the noise" if dry_run else "releasing")
    spending: Json = {"ledger": ledger, "total": total, "max_eps": max_eps}
    result = release(files, out=out, fresh=fresh, dry_run=dry_run, **spending, **arguments)
    _print(result, mode, out, dry_run, about)


def _declared(recipe: str | None, data: Texts, asked: Asked) -> tuple[Sequence[str], Json]:
    """The table, and the keywords of the verb ``release``, from flags or a recipe."""
    from wpriv.releases import declaration

    if recipe is None:
        _require(data=data, person=asked.person, delta=asked.delta)
        return data or (), asked.arguments()
    _refuse_beside(recipe, asked)
    files, arguments = declaration.of_recipe(recipe)
    if files is not None and data:
        raise UsageError(f"the recipe {recipe} names its data; leave out --data, or the key data of the recipe")
    _require(data=files or data)
    return files or data or (), arguments


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


def _refuse_beside(recipe: str, asked: Asked) -> None:
    """Refuse flags that say what a recipe says, and arguments that are none."""
    from wpriv.config.recipe_files import find

    given = {name: value for name, value in vars(asked).items() if value}
    if recipe.lower().endswith((".csv", ".txt", ".parquet", ".pq")) or "://" in recipe:
        table = "URL" if "://" in recipe else recipe  # a URL may have a password
        raise UsageError(f"a table is no recipe; give it as --data {table}")
    if given:
        try:
            find(recipe)
        except UsageError:
            raise UsageError(
                f"{recipe!r} belongs to no flag, and there is no recipe of this name. Give each flag its value, and "
                "write lists without blanks, as in --keys A,B"
            ) from None
    flags.no_flags(recipe, flags.Job(), **given)


def _several(arguments: Json) -> bool:
    outputs: Sequence[Output] = arguments["outputs"]
    return len(outputs) != 1 or arguments.get("by") is not None or len(outputs[0].bins()) != 1


def _words(text: str | None) -> list[str] | None:
    from wpriv.files import csv_tables

    return None if text is None else csv_tables.words(text)


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


def _named(texts: Texts, name: str, example: str) -> tuple[dict[str, str], str | None]:
    """Texts ``NAME=VALUE`` by name, and the one without a name, which is for all others."""
    of_all = [text for text in texts or () if "=" not in text]
    if len(of_all) > 1:
        raise UsageError(f"`{name}` is given twice; give it once, or with the name of what it is for")
    return _pairs([text for text in texts or () if "=" in text], name, example), next(iter(of_all), None)


def _listed(texts: Texts, name: str, example: str) -> list[tuple[str, list[str] | None]]:
    """Columns, each with the words behind its equals sign."""
    return [(column, _words(words)) for text in texts or () for column, words in _pairs([text], name, example).items()]


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
        has_widths = any(row["half_width"] is not None for row in rows)
        facts = [("95%", "exact: +- and standard errors are those of the noise alone")] * has_widths
        facts += [*(_costs(result) if dry_run else ()), *result.in_all()]
        facts += result.expected(about) if about is not None else ()
        notes = dict.fromkeys(str(row["note"]) for row in rows if row["half_width"] is not None)
        facts += [("note", note) for note in notes if note]
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
        key, name, value, width, low, high, error, note, _ = cells(row)
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
    from wpriv.numerics.numbers import short

    facts = []
    for step in result.guarantee.process.describe():
        about = ", ".join(
            f"{name} {short(value)}" for name, value in step.items() if isinstance(value, (int, float)) and name != "n"
        )
        facts.append(("ledger", f"{step['n']} x {step['mech']}: {about}"))
    keys = result.answer["keys"]
    if isinstance(keys, dict) and keys["kind"] == "unknown":
        facts.append(("keys", f"shown where the noisy count of persons is above {keys['threshold']}"))
        shown = ", ".join(f"{row['persons']}: {row['probability']:.4g}" for row in keys["shown"])
        facts.append(("keys", f"persons of a key, and the probability that it is shown: {shown}"))
    return facts
