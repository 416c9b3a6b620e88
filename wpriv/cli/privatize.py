"""wpriv privatize"""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.cli import flags, output
from wpriv.cli.flags import Text
from wpriv.cli.parsing import argument, option, switch
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.training.local.privatize import Privatized


def command(
    recipe: Text = argument("RECIPE", "Instead of flags, a recipe of kind privatize.", default=None),
    data: Text = option("NAME|FILE", "mnist, mnist:test, or a .npz, .npy or .csv, one record a row."),
    data_root: Path | None = flags.DATA_ROOT,
    out: Path | None = option("FILE.npz", "File of the noisy records; the statement is written beside it."),
    mech: Text = option("NAME", "local-gauss (l2 ball, needs --delta) or local-laplace (l1 ball)."),
    eps: flags.Text = flags.EPS,
    delta: flags.Text = flags.DELTA,
    sigma: Text = option("X", "Instead of --eps: standard deviation of Gaussian noise."),
    scale: Text = option("X", "Instead of --eps: scale b of Laplace noise."),
    radius: Text = option("X", "Norm that records are clipped to, chosen without looking at them."),
    center: Text = option("X", "Center of the ball, for every number (default 0)."),
    formula: Text = option("NAME", "Gaussian noise for --eps: analytic (default, least) or eq4."),
    nonnegative: bool = switch("--nonnegative", "Make negative numbers 0; Gaussian noise is then smaller by sqrt 2."),
    dct: bool = switch("--dct", "Clip and publish the orthonormal cosine transform of each record."),
    quantile: Text = option("Q", "Clamp each number to this quantile of --public records."),
    quantile_from: Text = option("NAME", "public (default) or private: as published, with NO guarantee."),
    public: Text = option("NAME|FILE", "Public records of the same shape, for --quantile."),
    thresholds: Text = option("FILE", "Instead of --quantile: the bound of each number."),
    limit: Text = option("K", "Only the first K records."),
    array: Text = option("NAME", "The array of a .npz with several (default x)."),
    header: bool | None = switch(
        "--header/--no-header", "Whether the first line of a .csv names its columns; else it is a record.", default=None
    ),
    public_labels: bool = switch("--public-labels", "The labels are public: write them too, unchanged."),
    param: list[str] | None = option("NAME=VALUE", "A parameter of the reader of --data; repeatable."),
    dtype: Text = option("NAME", "float32 (default) or float64."),
    seed: Text = option("K", "Repeatable noise, for tests: whoever knows K can remove it."),
    dry_run: bool = switch("--dry-run", "Only print what would be done and what it would cost."),
    ledger: str | None = flags.LEDGER_URL,
    as_json: bool = flags.JSON,
) -> None:
    """Clip every record and add noise to it, once: local differential privacy for the records of a data set.

    Everything computed from the result is post-processing and has no further cost.

    wpriv privatize --data digits --mech local-gauss --radius 4 --eps 35 --delta 1e-5 --dry-run

    wpriv privatize --data digits --mech local-laplace --radius 10 --eps 100 --out private.npz
    """
    from wpriv.accounting import load_recipe
    from wpriv.training.local.privatize import privatize

    given = {
        **{"data": data, "mech": flags.folded(mech), "eps": eps, "delta": delta, "sigma": sigma, "scale": scale},
        **{"radius": radius, "center": center, "formula": formula, "nonnegative": nonnegative, "dct": dct},
        **{"quantile": quantile, "quantile_from": quantile_from, "public": public, "thresholds": thresholds},
        **{"limit": limit, "array": array, "header": header, "public_labels": public_labels},
        **{"dtype": dtype, "seed": seed},
    }
    if recipe is None:
        arguments = _of_flags(given, param)
    else:
        flags.no_flags(recipe, flags.Job(param=param), **given)
        arguments = load_recipe.privatize(recipe)
    if out is None and not dry_run:
        raise UsageError("give --out FILE.npz for the noisy records, or --dry-run")
    if data_root is not None:
        arguments["root"] = data_root
    if ledger is not None:
        arguments["ledger"] = ledger
    _print(privatize(**arguments, out=out, dry_run=dry_run, say=partial(output.say, "note")), dry_run, as_json)


def _of_flags(given: dict[str, Any], param: list[str] | None) -> dict[str, Any]:
    """The arguments that the flags give, the parameters of the data set's reader in their types."""
    from wpriv.training.list_data import typed
    from wpriv.training.local.privatize import privatize
    from wpriv.training.local.records import ENDINGS

    if given["data"] is None:
        raise UsageError("privatize needs records: give --data NAME or FILE, or a recipe")
    parameters = flags.params(param)
    if clash := next((name for name in parameters if name in inspect.signature(privatize).parameters), None):
        raise UsageError(f"--param is for parameters of the reader of --data, and cannot set {clash}")
    if not given["data"].lower().endswith(ENDINGS):  # a file has no reader, and its parameters are refused as such
        parameters = typed(given["data"].partition(":")[0], parameters) if parameters else {}
    return {key: value for key, value in given.items() if value is not None} | parameters


def _print(result: Privatized, dry_run: bool, as_json: bool) -> None:
    statement = result.statement
    data = {**statement, "written": [str(file) for file in result.files]}
    records, _, guarantee = result.sentence().partition(": ")
    line = f"{records} {'would be privatised' if dry_run else 'privatised'}: {guarantee}"
    output.emit_answer(as_json, data, line, result.facts())
    output.say("note", *statement["data"]["read_as"])
    output.warn(statement["warnings"])
    if statement["guarantees"][0]["claim"] == "as-published":
        return
    output.say(
        "note",
        "everything computed from the noisy records is post-processing; "
        "adding noise to the same records again costs privacy again",
    )
