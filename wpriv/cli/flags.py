"""Flags that several commands share, and how their text is read."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wpriv import spec
from wpriv.cli import parsing
from wpriv.cli.parsing import OUTPUT, expand_record, switch
from wpriv.errors import UsageError
from wpriv.hints import fold, plain_key
from wpriv.spec import SCHEDULE
from wpriv.spec import Text as Text

if TYPE_CHECKING:
    from wpriv.accounting.build_process import DescribedProcess

# flags of wpriv train that the messages of other commands name
TRAINING = ("--resume", "--fork", "--fresh")
# keywords whose flags have another name
SPELLINGS = {"with_mu": "mu"}
# fields of a job that are about the answer, and not about the process
QUESTION = ("eps", "delta", "accountant", "tol")
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
        name, value = SPELLINGS.get(match[1], match[1]), match[2]
        option = f"--{name.replace('_', '-')}"
        text = "" if value is None or value == "True" else f" {value.strip(chr(39))}"
        if options is None or option in options:
            return option + text
        if option in TRAINING and value == "True":
            return f"{option} of wpriv train"
        return f"--param {name}={text.strip()}" if value is not None and "--param" in options else match[0]

    return _ARGUMENT.sub(flag, message)


def one_at_a_time(words: Sequence[str]) -> str | None:
    """What to type in place of a line of budget or compare that gives a flag several values with commas in between."""
    verb, first = [*words[:2], "", ""][:2]
    if verb not in ("budget", "compare") or "," not in "".join(words):
        return None
    from wpriv.config.plain_words import is_sentence  # loads numpy

    if not (first.startswith("--") or is_sentence(first)):
        return None
    parts = [part for word in words[1:] for part in (word.split("=", 1) if word.startswith("--") else (word,))]
    line, fault = ["wpriv", "compare"], ""
    while parts:
        flag = parts.pop(0)
        over, value = plain_key(flag[2:]).replace("-", "_"), parts[0] if parts else ""
        if flag == "--param":
            over, _, value = value.partition("=")
        if flag[:2] == "--" and over != "sweep" and _is_list(over, value):
            fault = fault or f"{flag} takes one value; found {value}"
            named = [word for one in value.split(",") for word in ("--accountant", one)]
            line += named if over == "accountant" else ["--sweep", f"{over}={value}"]
            parts.pop(0)
        else:
            line.append(flag)
    return f"{fault}. For each of them: {shlex.join(line)}" if fault else None


def _is_list(name: str, text: str) -> bool:
    """Tell whether text is several values of a key with commas between them, and not a number with commas."""
    from wpriv.core import registry
    from wpriv.numerics.numbers import number

    values = [value.strip() for value in text.split(",")]
    if len(values) < 2 or re.fullmatch(r"\d+,\d+|\d{1,3}(,\d{3})+", text):
        return False
    if kind := {"mech": "mechanisms", "accountant": "accountants"}.get(name):
        return all(registry.known(kind, value.partition(":")[0]) for value in values)
    with contextlib.suppress(UsageError):
        return [number(value, name) for value in values] != []
    return False


def option(name: str) -> Any:
    """The flag of a key of ``wpriv.spec``, with the help that is declared there."""
    about = spec.KEYS[name]
    text = as_flags(about["flag"])
    text = text[0].upper() + text[1:] + "." * (not text.endswith("..."))
    return parsing.option(about["metavar"], text, group=about["group"])


WORDS = parsing.argument(
    "RECIPE|STEPS",
    "Instead of flags: a recipe, by its path or its name, such as plc/fig7-dpsgd, or - for standard input; or "
    "a process in words, such as gauss sigma=4 n=10 poisson 0.01 + laplace scale=20.",
    default=None,
)
EPS = option("eps")
DELTA = option("delta")
HISTORY = option("history")
OBSERVED = option("observed")
REPEATS = option("repeats")
DATA_ROOT = parsing.option("DIR", "Folder of the data sets (before $WPRIV_DATA).", "--data-root", group=parsing.MACHINE)
JSON = switch("--json", "Print one JSON object; an error is one on standard error.", OUTPUT)
CSV = switch("--csv", "Print a header and rows of comma-separated values.", OUTPUT)
QUIET = switch("--quiet", "Print the bare number, rounded to the safe side.", OUTPUT)
LEDGER_URL = parsing.option("URL", "Spend from this ledger before any record is used, or be refused.", "--ledger")
# text, since typer loads pydantic for paths
CERTIFICATE = parsing.option(
    "FILE", "Write what `wpriv verify` needs to re-prove the answer.", "--certificate", group=OUTPUT
)
EXPLAIN = switch("--explain", "Add formula, sources, assumptions and how each flag was read.", OUTPUT)


@dataclasses.dataclass(frozen=True)
class Job(spec.Job):
    """The flags that describe a process and the question about it, as text; a recipe can hold the same."""

    def __post_init__(self) -> None:
        from wpriv.config.plain_words import plain_values  # loads numpy, which help does without
        from wpriv.core.registry import plain_accountant

        plain = plain_values({name: getattr(self, name) for name in ("mech", "sampling", "adjacency")})
        plain["accountant"] = [plain_accountant(text) for text in self.accountant or ()] or None
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def params(self) -> dict[str, object]:
        """Return the mechanism's parameters, from their own flags and from --param."""
        named = {f.name: getattr(self, f.name) for f in dataclasses.fields(spec.Mechanism)}
        return params(**{name: value for name, value in named.items() if name != "mech"})

    def schedule(self) -> dict[str, object]:
        """Return the number of compositions and the sampling."""
        return {key: getattr(self, key) for key in SCHEDULE}

    def described(self) -> dict[str, Any]:
        """Return the keywords of the verbs that describe a process."""
        relation = {"adjacency": self.adjacency, "group": self.group}
        return {"mech": self.mech, **self.params(), **self.schedule(), **relation}

    @property
    def several(self) -> bool:
        """Tell whether more than one accountant is named."""
        return several(self.accountant or [])

    def question(self) -> dict[str, float]:
        """Return eps, delta and tol as numbers, as far as they were given."""
        values = numbers(eps=self.eps, delta=self.delta, tol=self.tol)
        return {name: value for name, value in values.items() if value is not None}


def with_job(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each field of ``Job`` in place of its parameter ``job``."""
    return expand_record("job", Job, option)(command)


def several(accountants: Sequence[str]) -> bool:
    """Tell whether a list of accountants names more than one."""
    return len(accountants) > 1 or "all" in accountants


def folded(name: str | None) -> Any:
    """Return a name as names are known: ``GAUSS`` becomes gauss, ``replace_one`` becomes replace-one."""
    return None if name is None else fold(name)


class Subject(NamedTuple):
    """What a command is about: a recipe by name; several steps in words; or else the job of the flags."""

    recipe: str | None
    steps: tuple[dict[str, Any], ...]
    job: Job


def subject(words: Sequence[str] | None, job: Job, *, history: str | None = None, solves: bool = False) -> Subject:
    """Read the arguments of a command: the name of a recipe, or a process in words, beside flags.

    A process of one step may leave to flags what it does not say.

    Args:
        history: a file of steps, beside which no words stand.
        solves: whether a value in words may be ``?``, as for calibrate.
    """
    from wpriv.config import plain_words

    text = " ".join(words or ())
    if not words or (len(words) == 1 and (Path(text).exists() or not (plain_words.is_sentence(text) or " " in text))):
        return Subject(text or None, (), job)
    parsed = plain_words.parse(text, solves=solves)
    if history is not None:
        raise UsageError(f"{text[:80]!r} says what runs; leave out `history`, or the words")
    if len(parsed.steps) == 1:
        return Subject(None, (), _with_keys(job, text, parsed.one_step("the command")))
    about = {name: value for name, value in vars(job).items() if name not in (*QUESTION, *plain_words.SHARED)}
    if given := [name for name, value in about.items() if value is not None]:
        raise UsageError(f"{text[:80]!r} holds whole steps; leave out `{given[0]}`, or say it in words")
    return Subject(None, parsed.steps, _with_keys(job, text, parsed.shared))


def process(steps: Sequence[Mapping[str, Any]], job: Job, **files: Any) -> DescribedProcess:
    """The process of steps in words, or that of the job and of files with steps or observations."""
    from wpriv.accounting import build_process

    if not steps:
        return build_process.described_process(**job.described(), **files)
    if given := [name for name, value in files.items() if value is not None]:
        raise UsageError(f"the steps are given in words; leave out `{given[0]}`")
    return build_process.described_steps(steps, job.adjacency, job.group)


def _with_keys(job: Job, text: str, keys: Mapping[str, Any]) -> Job:
    """The job with keys of a step in words; parameters without a flag of their own become those of --param."""
    from wpriv.config.plain_words import renamed

    names = renamed(keys)
    own = {names[key]: value for key, value in keys.items() if names[key] in vars(job)}
    for name in own:
        if getattr(job, name) is not None:
            raise UsageError(f"{name} is given twice: in {text[:80]!r}, and as `{name}`")
    others = [f"{names[key]}={value}" for key, value in keys.items() if names[key] not in own]
    return dataclasses.replace(job, **own, param=[*(job.param or ()), *others] or None)


def no_flags(recipe: str, job: Job, **others: object) -> None:
    """Refuse flags beside a recipe that says the same things."""
    given = [name for name, value in {**vars(job), **others}.items() if value is not None and value is not False]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"the recipe {recipe} describes the whole job, and {flag} would change it; "
            f"leave out {flag}, or leave out {recipe}"
        )


def numbers(**values: Text) -> dict[str, float | None]:
    """Return each flag's text as a finite number, and None where it was not given."""
    from wpriv.numerics.numbers import number

    return {
        name: None if text is None else number(text, f"--{name.replace('_', '-')}") for name, text in values.items()
    }


def params(param: Sequence[str] | None, **named: Text) -> dict[str, object]:
    """Return the mechanism's parameters, from flags of their own and from ``--param name=value``."""
    values: dict[str, object] = {name: text for name, text in named.items() if text is not None}
    for entry in param or ():
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--param wants name=value, as in --param eps0=0.5; found {entry!r}")
        name = name.strip().replace("-", "_")
        if name in values:
            raise UsageError(f"the parameter {name} is given twice; give it once")
        if name in spec.KEYS.keys() - named.keys():
            raise UsageError(f"--param cannot set {name}; use --{name.replace('_', '-')}")
        values[name] = value
    return values


def output(*, json: bool, csv: bool, quiet: bool, explain: bool = False) -> str:
    """Return the output format: json, csv, quiet or text."""
    formats = [name for name, given in (("json", json), ("csv", csv), ("quiet", quiet)) if given]
    if len(formats) > 1:
        raise UsageError(f"--{' and --'.join(formats)} are different output formats; give one of them")
    if explain and (csv or quiet):
        raise UsageError(f"--explain needs text or JSON output; leave out --explain or --{formats[0]}")
    return formats[0] if formats else "text"
