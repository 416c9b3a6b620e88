"""The flags that several commands share, and what text they accept."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from wpriv.errors import UsageError
from wpriv.hints import fold

# every value arrives as text and is read by run/build.py, so that 1e-5, 2^20 and 256/60000 work everywhere and errors read alike
Text = str | None
Recipe = Annotated[
    Text,
    typer.Argument(metavar="RECIPE", help="Instead of flags, a recipe: a path, or a shipped one as plc/fig7-dpsgd."),
]
Mech = Annotated[
    Text, typer.Option("--mech", metavar="NAME", help="Mechanism: gauss, laplace, randomized-response, ...")
]
Sigma = Annotated[
    Text, typer.Option("--sigma", metavar="X", help="Standard deviation of the noise (noise multiplier x sensitivity).")
]
Scale = Annotated[Text, typer.Option("--scale", metavar="X", help="Scale b of Laplace noise.")]
Sensitivity = Annotated[Text, typer.Option("--sensitivity", metavar="X", help="Sensitivity of the query (default 1).")]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="Any other parameter of the mechanism; repeatable."),
]
N = Annotated[Text, typer.Option("--n", metavar="K", help="Number of compositions (releases, steps): 1000, 1e6, 2^20.")]
Epochs = Annotated[Text, typer.Option("--epochs", metavar="E", help="Instead of --n: n = ceil(E / rate).")]
SamplingKind = Annotated[
    Text, typer.Option("--sampling", metavar="KIND", help="none, poisson, or fixed (fixed size, without replacement).")
]
Rate = Annotated[
    Text, typer.Option("--rate", metavar="Q", help="Share of the records that takes part in a step: 0.01, 256/60000.")
]
Batch = Annotated[Text, typer.Option("--batch", metavar="B", help="Instead of --rate: rate = B / records.")]
Records = Annotated[
    Text, typer.Option("--records", metavar="N", help="Size of the data set (never the number of compositions).")
]
Adjacency = Annotated[Text, typer.Option("--adjacency", metavar="NAME", help="Neighbours: add-remove or replace-one.")]
Eps = Annotated[Text, typer.Option("--eps", metavar="X", help="Epsilon, at least 0.")]
Delta = Annotated[Text, typer.Option("--delta", metavar="X", help="Delta, strictly between 0 and 1.")]
Accountant = Annotated[
    list[str] | None,
    typer.Option(
        "--accountant",
        metavar="NAME",
        help="Accountant (default pld), as NAME or NAME:option=value; repeatable, or all.",
    ),
]
History = Annotated[
    Text,
    typer.Option(
        "--history",
        metavar="FILE",
        help="A ledger.jsonl, or a JSON list of steps or of [noise_multiplier, rate, steps].",
    ),
]
Tol = Annotated[
    Text,
    typer.Option("--tol", metavar="X", help="Relative width of a certified bracket (default 1e-6; comparisons 1e-3)."),
]
Observed = Annotated[
    Text,
    typer.Option(
        "--observed", metavar="FILE", help="Pair distances or gradients: .npz, .csv, or weibull:shape=0.5,..."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a header and rows of comma-separated values.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the bare number, rounded to the safe side.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add formula, sources, assumptions and how each flag was read.")
]


@dataclasses.dataclass(frozen=True)
class Job:
    """The flags that say what runs and what is asked of it, as text: all that a recipe says as well."""

    mech: Mech = None
    sigma: Sigma = None
    scale: Scale = None
    param: Param = None
    sensitivity: Sensitivity = None
    n: N = None
    epochs: Epochs = None
    sampling: SamplingKind = None
    rate: Rate = None
    batch: Batch = None
    records: Records = None
    adjacency: Adjacency = None
    eps: Eps = None
    delta: Delta = None
    accountant: Accountant = None
    tol: Tol = None

    def params(self) -> dict[str, Any]:
        """The mechanism's parameters, from their own flags and from --param."""
        return params(self.param, sigma=self.sigma, scale=self.scale, sensitivity=self.sensitivity)

    def schedule(self) -> dict[str, Any]:
        """How often the mechanism runs, on which share of the records."""
        keys = ("n", "epochs", "rate", "batch", "records")
        return {
            "sampling": "none" if self.sampling is None else self.sampling,
            **{key: getattr(self, key) for key in keys},
        }

    def question(self) -> dict[str, float]:
        """eps, delta and tol, as far as they were given."""
        return {name: x for name, x in numbers(eps=self.eps, delta=self.delta, tol=self.tol).items() if x is not None}


# an argument in a message: its name, and a value
_ARGUMENT = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


def as_flags(message: str, options: Collection[str] | None = None) -> str:
    """Replace arguments in backticks by flags: `tol` by --tol, `sampling='poisson'` by --sampling poisson, `fresh=True` by --fresh.

    Args:
        message: text as in ``wpriv.errors``.
        options: the flags of the command, such as ``--tol``; None where all arguments have flags. `name=value` without a flag of its own
            becomes --param name=value where the command has --param; anything else stays as it is.
    """

    def flag(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        option = f"--{name.replace('_', '-')}"
        text = "" if value is None or value == "True" else f" {value.strip(chr(39))}"
        if options is None or option in options:
            return option + text
        return f"--param {name}={text.strip()}" if value is not None and "--param" in options else match[0]

    return _ARGUMENT.sub(flag, message)


def with_job(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one flag for each field of ``Job`` in place of its parameter ``job``: typer reads flags from the signature."""
    types = get_type_hints(Job, include_extras=True)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    job = [
        inspect.Parameter(f.name, kind, default=f.default, annotation=types[f.name]) for f in dataclasses.fields(Job)
    ]
    own = inspect.signature(command, eval_str=True).parameters
    together = [p for name, parameter in own.items() for p in (job if name == "job" else [parameter])]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        given |= {name: folded(given[name]) for name in ("mech", "sampling", "adjacency")}
        words = [word.partition(":") for word in given["accountant"] or ()]
        given["accountant"] = [folded(name) + colon + options for name, colon, options in words] or None
        command(job=Job(**{f.name: given.pop(f.name) for f in dataclasses.fields(Job)}), **given)

    run.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in together}
    return run


def folded(name: str | None) -> Any:
    """A name in the form in which names are known: ``GAUSS`` is gauss, ``replace_one`` is replace-one."""
    return None if name is None else fold(name)


def no_flags(recipe: str, job: Job, **others: Any) -> None:
    """Raises UsageError where a recipe is given together with a flag that says what the recipe says itself."""
    given = [name for name, value in {**vars(job), **others}.items() if value]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"the recipe {recipe} says itself what runs, and so does {flag}; leave out {flag}, or leave out {recipe}"
        )


def numbers(**values: Text) -> dict[str, float | None]:
    """Each flag's text as a finite number; None where it was not given."""
    from wpriv.numerics.parse_numbers import number

    return {
        name: None if text is None else number(text, f"--{name.replace('_', '-')}") for name, text in values.items()
    }


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
