"""wpriv recipe"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wpriv.config import yaml_document
from wpriv.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="RECIPE", help="A path, or a shipped recipe as plc/fig7-dpsgd.")]
Names = Annotated[list[str], typer.Argument(metavar="RECIPE...", help="Paths, or shipped recipes as plc/fig7-dpsgd.")]
Quick = Annotated[bool, typer.Option("--quick", help="With the quick overrides applied.")]
Target = Annotated[
    Path,
    typer.Argument(metavar="[TO]", help="The new file, ending in .yaml, or a directory; created where it is missing."),
]
Beginning = Annotated[
    str | None,
    typer.Argument(metavar="[PAPER]", help="Only the recipes of a paper, or whose names begin so: plc, plc/fig7."),
]


@app.callback(invoke_without_command=True)
def top(ctx: typer.Context) -> None:
    """Recipes: list, check, show and copy them, or their schema."""
    if ctx.invoked_subcommand is None:
        raise UsageError("no recipe command given. Known: ls, check, show, schema, cp. Try wpriv recipe --help")


@app.command()
def ls(beginning: Beginning = None) -> None:
    """List the shipped recipes: kind, time (~: not measured on a full run), data, and the table or figure they come from.

    wpriv recipe ls plc
    """
    from wpriv.cli import guarantee_output, terminal
    from wpriv.run import recipe_duration, recipe_files

    rows = [
        [row.name, row.kind, recipe_duration.short(row.time), row.data or "-", row.source]
        for row in recipe_files.listing(beginning)
    ]
    terminal.print_table(guarantee_output.table(["recipe", "kind", "time", "data", "source"], rows))


@app.command()
def check(recipes: Names) -> None:
    """Check recipes: every fault of the first faulty one with file, line and column."""
    from wpriv.cli import guarantee_output
    from wpriv.run import load_recipe

    kinds = []
    for name in recipes:
        for quick in (False, True):
            recipe = load_recipe.recipe(name, quick=quick)
        kinds.append(recipe.kind)
    for name, kind in zip(recipes, kinds, strict=True):
        guarantee_output.emit(f"{name}: a sound recipe of kind {kind}")


@app.command("show")
def resolved(recipe: Name, quick: Quick = False) -> None:
    """Show a recipe as resolved: panels complete, overrides applied."""
    from wpriv.cli import guarantee_output
    from wpriv.run import load_recipe

    guarantee_output.emit(yaml_document.as_yaml(load_recipe.recipe(recipe, quick=quick).data).rstrip("\n"))


@app.command()
def schema() -> None:
    """Print the JSON Schema of recipes, for editors that check while you write."""
    import json

    from wpriv.cli import guarantee_output
    from wpriv.config.schema import json_schema

    guarantee_output.emit(json.dumps(json_schema(), indent=2))


@app.command()
def cp(recipe: Name, to: Target = Path()) -> None:
    """Copy a shipped recipe, and the files it reads, to change them."""
    from wpriv.cli import guarantee_output
    from wpriv.run import recipe_files

    for path in recipe_files.copy(recipe, to):
        guarantee_output.emit(str(path))
