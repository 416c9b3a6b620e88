"""wpriv privatize"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.run.local.privatize import Privatized

Recipe = Annotated[flags.Text, typer.Argument(metavar="RECIPE", help="Instead of flags, a recipe of kind privatize.")]
Data = Annotated[
    flags.Text,
    typer.Option("--data", metavar="NAME|FILE", help="mnist, mnist:test, or a .npz, .npy or .csv, one record a row."),
]
Root = Annotated[
    Path | None, typer.Option("--data-root", metavar="DIR", help="Folder of the data sets (before $WPRIV_DATA).")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE.npz", help="File of the noisy records; the statement is written beside it."),
]
Mech = Annotated[
    flags.Text,
    typer.Option("--mech", metavar="NAME", help="local-gauss (l2 ball, needs --delta) or local-laplace (l1 ball)."),
]
Sigma = Annotated[
    flags.Text, typer.Option("--sigma", metavar="X", help="Instead of --eps: standard deviation of Gauss noise.")
]
Scale = Annotated[flags.Text, typer.Option("--scale", metavar="X", help="Instead of --eps: scale b of Laplace noise.")]
Radius = Annotated[
    flags.Text,
    typer.Option("--radius", metavar="X", help="Norm that records are clipped to, chosen without looking at them."),
]
Center = Annotated[
    flags.Text, typer.Option("--center", metavar="X", help="Center of the ball, for every number (default 0).")
]
Formula = Annotated[
    flags.Text,
    typer.Option("--formula", metavar="NAME", help="Gauss noise for --eps: analytic (default, least) or eq4."),
]
Nonnegative = Annotated[
    bool, typer.Option("--nonnegative", help="Make negative numbers 0; Gauss noise is then smaller by sqrt 2.")
]
Dct = Annotated[bool, typer.Option("--dct", help="Clip and publish the orthonormal cosine transform of each record.")]
Quantile = Annotated[
    flags.Text, typer.Option("--quantile", metavar="Q", help="Clamp each number to this quantile of --public records.")
]
Public = Annotated[
    flags.Text, typer.Option("--public", metavar="NAME|FILE", help="Public records of the same shape, for --quantile.")
]
Thresholds = Annotated[
    flags.Text,
    typer.Option("--thresholds", metavar="FILE", help="Instead of --quantile: the bound of each number."),
]
Limit = Annotated[flags.Text, typer.Option("--limit", metavar="K", help="Only the first K records.")]
ArrayName = Annotated[
    flags.Text, typer.Option("--array", metavar="NAME", help="The array of a .npz with several (default x).")
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether the first line of a .csv names its columns; else it is a record."
    ),
]
Labels = Annotated[bool, typer.Option("--public-labels", help="The labels are public: write them too, unchanged.")]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the reader of --data; repeatable."),
]
Dtype = Annotated[flags.Text, typer.Option("--dtype", metavar="NAME", help="float32 (default) or float64.")]
Seed = Annotated[
    flags.Text,
    typer.Option("--seed", metavar="K", help="Repeatable noise, for tests: whoever knows K can remove it."),
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done and what it would cost.")]


def command(
    recipe: Recipe = None,
    data: Data = None,
    data_root: Root = None,
    out: Out = None,
    mech: Mech = None,
    eps: flags.Eps = None,
    delta: flags.Delta = None,
    sigma: Sigma = None,
    scale: Scale = None,
    radius: Radius = None,
    center: Center = None,
    formula: Formula = None,
    nonnegative: Nonnegative = False,
    dct: Dct = False,
    quantile: Quantile = None,
    public: Public = None,
    thresholds: Thresholds = None,
    limit: Limit = None,
    array: ArrayName = None,
    header: Header = None,
    public_labels: Labels = False,
    param: Param = None,
    dtype: Dtype = None,
    seed: Seed = None,
    dry_run: Dry = False,
    as_json: flags.Json = False,
) -> None:
    """Clip every record and add noise to it, once: local differential privacy for the records of a data set.

    Everything computed from the result is post-processing and has no further cost.

    wpriv privatize --data mnist --mech local-gauss --radius 8 --eps 35 --delta 1e-4 --out private.npz
    """
    from wpriv.run.local.privatize import privatize

    given = {
        **{"data": data, "mech": flags.folded(mech), "eps": eps, "delta": delta, "sigma": sigma, "scale": scale},
        **{"radius": radius, "center": center, "formula": formula, "nonnegative": nonnegative, "dct": dct},
        **{"quantile": quantile, "public": public, "thresholds": thresholds, "limit": limit, "array": array},
        **{"header": header, "public_labels": public_labels, "dtype": dtype, "seed": seed},
    }
    arguments = _of_flags(given, param) if recipe is None else _of_recipe(recipe, given, param)
    if out is None and not dry_run:
        raise UsageError("give --out FILE.npz for the noisy records, or --dry-run")
    if data_root is not None:
        arguments["root"] = data_root
    _print(privatize(**arguments, out=out, dry_run=dry_run, say=_note), dry_run, as_json)


def _of_flags(given: dict[str, Any], param: list[str] | None) -> dict[str, Any]:
    """The arguments that the flags give, the parameters of the data set's reader in their types."""
    from wpriv.run.list_data import typed
    from wpriv.run.local.privatize import privatize
    from wpriv.run.local.records import ENDINGS

    if given["data"] is None:
        raise UsageError("privatize needs records: give --data NAME or FILE, or a recipe")
    parameters = flags.params(param)
    if clash := next((name for name in parameters if name in inspect.signature(privatize).parameters), None):
        raise UsageError(f"--param is for parameters of the reader of --data, and cannot set {clash}")
    if not given["data"].lower().endswith(ENDINGS):  # a file has no reader, and its parameters are refused as such
        parameters = typed(given["data"].partition(":")[0], parameters) if parameters else {}
    return {key: value for key, value in given.items() if value is not None} | parameters


def _of_recipe(recipe: str, given: dict[str, Any], param: list[str] | None) -> dict[str, Any]:
    """The arguments that a recipe gives; flags beside it that say the same things are refused."""
    from wpriv.run import load_recipe

    flags.no_flags(recipe, flags.Job(param=param), **given)
    return load_recipe.privatize(recipe)


def _note(line: str) -> None:
    from wpriv.cli import output

    output.say("note", line)


def _print(result: Privatized, dry_run: bool, as_json: bool) -> None:
    """Print the guarantee, the facts of the statement and the written files."""
    from wpriv.cli import output
    from wpriv.run.local import local_statement
    from wpriv.run.results import words

    statement = result.statement
    if as_json:
        output.emit_json({**statement, "written": [str(file) for file in result.files]})
    else:
        shape = " x ".join(str(side) for side in statement["data"]["shape"])
        action = "would be privatised" if dry_run else "privatised"
        records = f"{statement['data']['records']} records of {shape}"
        reports = local_statement.read(statement)
        output.emit_bold(f"{records} {action}: {words.headline(reports)}")
        for name, fact in words.report_facts(reports):
            output.emit(f"{name}: {fact}")
        for file in result.files:
            output.emit(f"written: {file}")
    for line in statement["data"]["read_as"]:
        output.say("note", line)
    output.warn(statement["warnings"])
    output.say(
        "note",
        "everything computed from the noisy records is post-processing; "
        "adding noise to the same records again costs privacy again",
    )
