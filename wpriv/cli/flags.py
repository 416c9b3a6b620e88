"""The flags that several commands share, and what text they accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from wpriv.errors import UsageError

# every value arrives as text and is read by run/build.py, so that 1e-5, 2^20 and 256/60000 work everywhere and errors read alike
Text = str | None
Mech = Annotated[Text, typer.Option("--mech", metavar="NAME", help="Mechanism: gauss, laplace, randomized-response, ...")]
Sigma = Annotated[Text, typer.Option("--sigma", metavar="X", help="Standard deviation of the noise (noise multiplier x sensitivity).")]
Scale = Annotated[Text, typer.Option("--scale", metavar="X", help="Scale b of Laplace noise.")]
Sensitivity = Annotated[Text, typer.Option("--sensitivity", metavar="X", help="Sensitivity of the query (default 1).")]
Param = Annotated[list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Any other parameter of the mechanism; repeatable.")]
N = Annotated[Text, typer.Option("--n", metavar="K", help="Number of compositions (releases, steps): 1000, 1e6, 2^20.")]
Epochs = Annotated[Text, typer.Option("--epochs", metavar="E", help="Instead of --n: n = ceil(E / rate).")]
SamplingKind = Annotated[str, typer.Option("--sampling", metavar="KIND", help="none, poisson, or fixed (fixed size, without replacement).")]
Rate = Annotated[Text, typer.Option("--rate", metavar="Q", help="Share of the records that takes part in a step: 0.01, 256/60000.")]
Batch = Annotated[Text, typer.Option("--batch", metavar="B", help="Instead of --rate: rate = B / records.")]
Records = Annotated[Text, typer.Option("--records", metavar="N", help="Size of the data set (never the number of compositions).")]
Adjacency = Annotated[Text, typer.Option("--adjacency", metavar="NAME", help="Neighbours: add-remove or replace-one.")]
Eps = Annotated[Text, typer.Option("--eps", metavar="X", help="Epsilon, at least 0.")]
Delta = Annotated[Text, typer.Option("--delta", metavar="X", help="Delta, strictly between 0 and 1.")]
Accountant = Annotated[
    list[str] | None,
    typer.Option("--accountant", metavar="NAME", help="Accountant (default pld), as NAME or NAME:option=value; repeatable, or all."),
]
History = Annotated[Text, typer.Option("--history", metavar="FILE", help="JSON list of steps, or of [noise_multiplier, rate, steps].")]
Observed = Annotated[
    Text, typer.Option("--observed", metavar="FILE", help="Pair distances or gradients: .npz, .csv, or weibull:shape=0.5,...")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a header and rows of comma-separated values.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the bare number, rounded to the safe side.")]
Explain = Annotated[bool, typer.Option("--explain", help="Add formula, sources, assumptions and how each flag was read.")]


def numbers(**values: Text) -> dict[str, float | None]:
    """Each flag's text as a finite number; None where it was not given."""
    from wpriv.run import build

    return {name: None if text is None else build.number(text, f"--{name.replace('_', '-')}") for name, text in values.items()}


def params(param: Sequence[str] | None, **named: Text) -> dict[str, Any]:
    """The mechanism's parameters, from flags of their own and from ``--param name=value``.

    Raises:
        UsageError: an entry without '=', or a parameter given twice.
    """
    found: dict[str, Any] = {name: text for name, text in named.items() if text is not None}
    for entry in param or ():
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--param wants name=value, as in --param eps0=0.5; found {entry!r}")
        name = name.strip().replace("-", "_")
        if name in found:
            raise UsageError(f"the parameter {name} is given twice; give it once")
        if name in ("mech", "n", "sampling", "rate"):
            raise UsageError(f"--param {name}=... : use --{name}")
        found[name] = value
    return found


def output(*, json: bool, csv: bool, quiet: bool, explain: bool = False) -> str:
    """The one format asked for: json, csv, quiet or text.

    Raises:
        UsageError: two are asked for at once.
    """
    asked = [name for name, on in (("json", json), ("csv", csv), ("quiet", quiet)) if on]
    if len(asked) > 1:
        raise UsageError(f"--{' and --'.join(asked)} ask for different outputs; give one of them")
    if explain and (csv or quiet):
        raise UsageError(f"--explain has no room in the output of --{asked[0]}; leave one of them out")
    return asked[0] if asked else "text"
