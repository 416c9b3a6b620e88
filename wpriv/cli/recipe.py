"""wpriv recipe"""

from __future__ import annotations

from pathlib import Path

import typer

from wpriv.cli import flags, output
from wpriv.cli.parsing import Command, Group, argument, option, switch
from wpriv.errors import UsageError

SCHEMA = "wpriv.list/1"  # as `wpriv list recipes --json`
app = typer.Typer(cls=Group, add_completion=False, rich_markup_mode=None)
NAME = argument("RECIPE", "A path, or the name of a shipped recipe such as plc/fig7-dpsgd.")


@app.callback(invoke_without_command=True)
def top(ctx: typer.Context) -> None:
    """List, check, show, copy and refresh recipes, or print their schema.

    wpriv recipe ls quick

    wpriv recipe show quick/digits

    wpriv recipe cp plc/fig7-dpsgd mine.yaml
    """
    if ctx.invoked_subcommand is None:
        raise UsageError(
            "no recipe command given. Known: ls, check, show, schema, cp, refresh. Try wpriv recipe --help"
        )


@app.command(cls=Command)
def ls(
    beginning: str | None = argument("PAPER", "Only recipes whose names begin like this: plc, plc/fig7.", default=None),
    as_json: bool = flags.JSON,
) -> None:
    """List the shipped recipes: kind, time (~: not measured on a full run), data, and the reproduced table or figure.

    wpriv recipe ls

    wpriv recipe ls plc/fig7
    """
    from wpriv.config import recipe_files
    from wpriv.training.plan import short_duration

    keys = ["name", "kind", "time", "data", "source"]
    rows = [
        [row.name, row.kind, short_duration(row.time), row.data or "-", row.source]
        for row in recipe_files.listing(beginning)
    ]
    if as_json:
        output.emit_rows([dict(zip(keys, row, strict=True)) for row in rows], SCHEMA)
    else:
        output.emit_table(["recipe", *keys[1:]], rows)


@app.command(cls=Command)
def check(
    recipes: list[str] = argument("RECIPE...", "Paths, or names of shipped recipes such as plc/fig7-dpsgd."),
) -> None:
    """Check recipes, and report every fault of the first faulty one with file, line and column.

    wpriv recipe check quick/digits mine.yaml
    """
    from wpriv.accounting import load_recipe

    kinds = []
    for name in recipes:
        for quick in (False, True):
            recipe = load_recipe.read(name, quick=quick)
        kinds.append(recipe.kind)
        if recipe.kind == "check":
            from wpriv.checks.premises import of_document
            from wpriv.config import recipe_files, yaml_document

            of_document(yaml_document.read(recipe_files.find(name)))
    for name, kind in zip(recipes, kinds, strict=True):
        output.emit(f"{name}: a sound recipe of kind {kind}")


@app.command(cls=Command)
def show(recipe: str = NAME, quick: bool = switch("--quick", "Apply the recipe's quick overrides.")) -> None:
    """Show a recipe as resolved: panels complete, overrides applied.

    wpriv recipe show quick/digits --quick
    """
    from wpriv.accounting import load_recipe
    from wpriv.config import yaml_document

    output.emit(yaml_document.as_yaml(load_recipe.read(recipe, quick=quick).data).rstrip("\n"))


@app.command(cls=Command)
def schema() -> None:
    """Print the JSON Schema of recipes, for editors that check while you write.

    wpriv recipe schema
    """
    import json

    from wpriv.config.schema import json_schema

    output.emit(json.dumps(json_schema(), indent=2))


@app.command(cls=Command)
def cp(
    recipe: str = NAME,
    to: Path = argument(
        "TO", "The new file, ending in .yaml, or a folder; created where it is missing.", default=Path()
    ),
) -> None:
    """Copy a shipped recipe and the files that it reads, as a starting point for changes.

    wpriv recipe cp ldp/fig7 ldp
    """
    from wpriv.config import recipe_files

    output.emit(*map(str, recipe_files.copy(recipe, to)))


@app.command(cls=Command)
def refresh(
    recipe: str = argument("RECIPE|all", "A path, the name of a shipped recipe, or all that have own numbers."),
    out: Path | None = option("DIR", "Folder of the results, by commit (default refresh)."),
    at_most: str | None = option("TIME", "Run no recipe beyond this time: 30min, 2h; 0 only lists them."),
    jobs: int = option("N", "Number of trainings of a recipe that run at the same time.", min=1, default=1),
    data_root: Path | None = flags.DATA_ROOT,
    results: Path | None = option(
        "DIR", "Take the numbers of finished results, or of a reproduction: run nothing.", "--from"
    ),
) -> None:
    """Run recipes, and write their own numbers anew, with the commit that gave them, into their files.

    Own numbers are expected numbers that come from an earlier run (kind: own). Numbers that are published or computed
    apart, comments and layout stay as they are. Exit code 1: a run has no answer for some number, which stays too.

    wpriv recipe refresh all --at-most 0

    wpriv recipe refresh ldp/fig7 --from reproduction
    """
    from wpriv.cli import reproduction_output

    if results is not None:
        running = {"--out": out, "--at-most": at_most, "--jobs": None if jobs == 1 else jobs, "--data-root": data_root}
        if names := [name for name, value in running.items() if value is not None]:
            raise UsageError(f"--from runs nothing, and {names[0]} is for runs. Leave out one of the two")
        reproduction_output.refresh_from(recipe, results)
        return
    reproduction_output.refresh(recipe, out or Path("refresh"), at_most, jobs, data_root)
