"""Flags that several commands share, and how their text is read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import typer

from wpriv.cli.typer_internals import expand_record
from wpriv.errors import UsageError
from wpriv.hints import fold

# values stay text and are read by wpriv/numerics/parse_numbers.py: 1e-5, 2^20 and 256/60000 work everywhere, with the
# same errors
Text = str | None
Recipe = Annotated[
    Text,
    typer.Argument(
        metavar="RECIPE", help="Instead of flags: the path or the name of a recipe, such as plc/fig7-dpsgd."
    ),
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
    Text,
    typer.Option("--sampling", metavar="KIND", help="none, poisson, fixed (no replacement), allocation, or shuffle."),
]
Rate = Annotated[
    Text, typer.Option("--rate", metavar="Q", help="Share of the records that takes part in a step: 0.01, 256/60000.")
]
Batch = Annotated[Text, typer.Option("--batch", metavar="B", help="Instead of --rate: rate = B / records.")]
Records = Annotated[
    Text, typer.Option("--records", metavar="N", help="Size of the data set (never the number of compositions).")
]
MaxBatch = Annotated[
    Text,
    typer.Option(
        "--max-batch", metavar="B", help="For poisson: of more than B records drawn, keep a random B; with --records."
    ),
]
Bands = Annotated[
    Text,
    typer.Option(
        "--bands", metavar="B", help="For poisson, gauss: n steps of a B-banded matrix mechanism, as n/B at rate B x Q."
    ),
]
Group = Annotated[
    Text, typer.Option("--group", metavar="M", help="Largest number of records of one person (default 1).")
]
Adjacency = Annotated[
    Text, typer.Option("--adjacency", metavar="NAME", help="Neighbours: add-remove, replace-one, or zero-out.")
]
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
        "--observed",
        metavar="FILE",
        help="For wdp and bdp: pair distances or gradients, as .npz, .csv, or weibull:shape=0.5,...",
    ),
]
Repeats = Annotated[
    Text,
    typer.Option(
        "--repeats",
        metavar="DIST",
        help="Only the best of K such runs is released: geometric:mean=20, poisson:mean=20, ...",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a header and rows of comma-separated values.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the bare number, rounded to the safe side.")]
# text, since typer loads pydantic for paths
Certificate = Annotated[
    str | None,
    typer.Option("--certificate", metavar="FILE", help="Write what `wpriv verify` needs to re-prove the answer."),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add formula, sources, assumptions and how each flag was read.")
]


# flags for how often a mechanism runs and on which records
SCHEDULE = ("n", "epochs", "sampling", "rate", "batch", "records", "max_batch", "bands")


@dataclasses.dataclass(frozen=True)
class Job:
    """The flags that describe a process and the question about it, as text; a recipe can hold the same."""

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
    max_batch: MaxBatch = None
    bands: Bands = None
    adjacency: Adjacency = None
    group: Group = None
    eps: Eps = None
    delta: Delta = None
    accountant: Accountant = None
    tol: Tol = None

    def __post_init__(self) -> None:
        for name in ("mech", "sampling", "adjacency"):
            object.__setattr__(self, name, folded(getattr(self, name)))
        accountants = [text.partition(":") for text in self.accountant or ()]
        names = [folded(name) + colon + options for name, colon, options in accountants]
        object.__setattr__(self, "accountant", names or None)

    def params(self) -> dict[str, Any]:
        """Return the mechanism's parameters, from their own flags and from --param."""
        return params(self.param, sigma=self.sigma, scale=self.scale, sensitivity=self.sensitivity)

    def schedule(self) -> dict[str, Any]:
        """Return the number of compositions and the sampling."""
        given = {key: getattr(self, key) for key in SCHEDULE}
        return {**given, "sampling": "none" if self.sampling is None else self.sampling}

    def question(self) -> dict[str, float]:
        """Return eps, delta and tol as numbers, as far as they were given."""
        values = numbers(eps=self.eps, delta=self.delta, tol=self.tol)
        return {name: value for name, value in values.items() if value is not None}


# flags of wpriv train that the messages of other commands name
TRAINING = ("--resume", "--fork", "--fresh")
# an argument in a message: its name, and a value
_ARGUMENT = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


def as_flags(message: str, options: Collection[str] | None = None) -> str:
    """Replace arguments in backticks by flags: `tol` by --tol, `sampling='poisson'` by --sampling poisson, `fresh=True`
    by --fresh.

    Args:
        message: text as in ``wpriv.errors``.
        options: the flags of the command, such as ``--tol``; None where all arguments have flags. `name=value` without
            a flag of its own becomes --param name=value where the command has --param, and `fresh=True` becomes --fresh
            of wpriv train; anything else stays as it is.
    """

    def flag(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        option = f"--{name.replace('_', '-')}"
        text = "" if value is None or value == "True" else f" {value.strip(chr(39))}"
        if options is None or option in options:
            return option + text
        if option in TRAINING and value == "True":
            return f"{option} of wpriv train"
        return f"--param {name}={text.strip()}" if value is not None and "--param" in options else match[0]

    return _ARGUMENT.sub(flag, message)


def with_job(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each field of ``Job`` in place of its parameter ``job``."""
    return expand_record("job", Job)(command)


def folded(name: str | None) -> Any:
    """Return a name as names are known: ``GAUSS`` becomes gauss, ``replace_one`` becomes replace-one."""
    return None if name is None else fold(name)


def no_flags(recipe: str, job: Job, **others: Any) -> None:
    """Refuse flags beside a recipe that says the same things.

    Raises:
        UsageError: a recipe and such a flag are given together.
    """
    given = [name for name, value in {**vars(job), **others}.items() if value is not None and value is not False]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"the recipe {recipe} describes the whole job, and {flag} would change it; "
            f"leave out {flag}, or leave out {recipe}"
        )


def numbers(**values: Text) -> dict[str, float | None]:
    """Return each flag's text as a finite number, and None where it was not given."""
    from wpriv.numerics.parse_numbers import number

    return {
        name: None if text is None else number(text, f"--{name.replace('_', '-')}") for name, text in values.items()
    }


def params(param: Sequence[str] | None, **named: Text) -> dict[str, Any]:
    """Return the mechanism's parameters, from flags of their own and from ``--param name=value``.

    Raises:
        UsageError: an entry has no '=', or a parameter is given twice.
    """
    values: dict[str, Any] = {name: text for name, text in named.items() if text is not None}
    for entry in param or ():
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--param wants name=value, as in --param eps0=0.5; found {entry!r}")
        name = name.strip().replace("-", "_")
        if name in values:
            raise UsageError(f"the parameter {name} is given twice; give it once")
        if name in ("mech", *SCHEDULE, "group"):
            raise UsageError(f"--param cannot set {name}; use --{name.replace('_', '-')}")
        values[name] = value
    return values


def output(*, json: bool, csv: bool, quiet: bool, explain: bool = False) -> str:
    """Return the output format: json, csv, quiet or text.

    Raises:
        UsageError: the flags ask for two formats.
    """
    formats = [name for name, given in (("json", json), ("csv", csv), ("quiet", quiet)) if given]
    if len(formats) > 1:
        raise UsageError(f"--{' and --'.join(formats)} are different output formats; give one of them")
    if explain and (csv or quiet):
        raise UsageError(f"--explain needs text or JSON output; leave out --explain or --{formats[0]}")
    return formats[0] if formats else "text"
