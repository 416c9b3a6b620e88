"""wpriv privatize"""

from __future__ import annotations

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
    typer.Option("--data", metavar="NAME|FILE", help="mnist, mnist:test, or a .npz, .npy or .csv, a record a row."),
]
Root = Annotated[
    Path | None, typer.Option("--data-root", metavar="DIR", help="Where data sets lie (before $WPRIV_DATA).")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE.npz", help="Where the noisy records go; the statement goes beside it."),
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
    typer.Option(
        "--radius", metavar="X", help="Norm to which every record is clipped, chosen without looking at the records."
    ),
]
Center = Annotated[
    flags.Text, typer.Option("--center", metavar="X", help="Middle of the ball, for every number (default 0).")
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
    flags.Text, typer.Option("--thresholds", metavar="FILE", help="Instead: what each number is clamped to.")
]
Limit = Annotated[flags.Text, typer.Option("--limit", metavar="K", help="Only the first K records.")]
Named = Annotated[
    flags.Text, typer.Option("--array", metavar="NAME", help="The array of a .npz with several (default x).")
]
Labels = Annotated[bool, typer.Option("--public-labels", help="The labels are public: write them too, as they are.")]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the reader of --data; repeatable."),
]
Dtype = Annotated[flags.Text, typer.Option("--dtype", metavar="NAME", help="float32 (default) or float64.")]
Seed = Annotated[
    flags.Text,
    typer.Option("--seed", metavar="K", help="Repeatable noise, for tests: whoever knows K takes it off again."),
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done and what it would cost.")]


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
    array: Named = None,
    public_labels: Labels = False,
    param: Param = None,
    dtype: Dtype = None,
    seed: Seed = None,
    dry_run: Dry = False,
    as_json: flags.Json = False,
) -> None:
    """Clip every record and put noise on it, once: local differential privacy for the records of a data set.

    What is computed from the result afterwards is post-processing and costs nothing more.

    wpriv privatize --data mnist --mech local-gauss --radius 8 --eps 35 --delta 1e-4 --out private.npz
    """
    from wpriv.cli import guarantee_output
    from wpriv.run.local.privatize import privatize

    given = {
        "data": data, "mech": mech, "eps": eps, "delta": delta, "sigma": sigma, "scale": scale, "radius": radius, "center": center,
        "formula": formula, "nonnegative": nonnegative, "dct": dct, "quantile": quantile, "public": public, "thresholds": thresholds,
        "limit": limit, "array": array, "public_labels": public_labels, "dtype": dtype, "seed": seed,
    }  # fmt: skip
    given["mech"] = flags.folded(mech)
    asked = _asked(given, param) if recipe is None else _of_recipe(recipe, given, param)
    if out is None and not dry_run:
        raise UsageError("give --out FILE.npz, where the noisy records go (or --dry-run)")
    root = asked.pop("root", None) if data_root is None else data_root
    done = privatize(
        **{**asked, "root": root}, out=out, dry_run=dry_run, say=lambda line: guarantee_output.say("note", line)
    )
    if as_json:
        guarantee_output.emit(
            guarantee_output.as_json({**done.statement, "written": [str(file) for file in done.files]})
        )
    else:
        _tell(done, dry_run)
    for line in done.statement["warnings"]:
        guarantee_output.say("warning", line)
    guarantee_output.say(
        "note",
        "all that is made of the noisy records is post-processing; noise put on the same records again is paid for again",
    )


def _asked(given: dict[str, Any], param: list[str] | None) -> dict[str, Any]:
    """What the flags ask for, the parameters of the data set's reader in their types."""
    from wpriv.run.list_data import typed

    if given["data"] is None:
        raise UsageError("privatize needs records: give --data NAME or FILE, or a recipe")
    reader = typed(given["data"].partition(":")[0], flags.params(param)) if param else {}
    return {key: value for key, value in given.items() if value is not None} | reader


def _of_recipe(recipe: str, given: dict[str, Any], param: list[str] | None) -> dict[str, Any]:
    """What a recipe asks for, beside which no flag may say anything."""
    from wpriv.run import load_recipe

    flags.no_flags(recipe, flags.Job(param=param), **given)
    return load_recipe.privatize(recipe)


def _tell(done: Privatized, dry_run: bool) -> None:
    """Says what was done to how many records, and where the files are."""
    from wpriv.cli import guarantee_output
    from wpriv.run.local import local_statement

    said = done.statement
    count = f"{said['data']['records']} records of {' x '.join(str(side) for side in said['data']['shape'])}"
    guarantee_output.emit(
        guarantee_output.bold(f"{count} {'would be ' * dry_run}privatised: {local_statement.headline(said)}")
    )
    for word, line in local_statement.facts(said):
        guarantee_output.emit(f"{word}: {line}")
    for file in done.files:
        guarantee_output.emit(f"written: {file}")
