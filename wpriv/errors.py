"""The errors that wpriv raises on purpose, each with the exit code of the command line.

Messages speak of arguments and parameters as Python has them, in backticks: `tol`, `sampling='poisson'`, `fresh=True`.
The command line prints these as flags (--tol, --sampling poisson, --fresh) where the command has such a flag, and other
mechanism parameters with a value as --param name=value (``wpriv.cli.flags.as_flags``).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from wpriv.hints import instead

# errors of the operating system that mean a wrong path, not a full disk or a missing permission
WRONG_PATH = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP)


# the exit codes of the command line: the word in the JSON form of an error, and the meaning
EXIT_CODES = {
    0: ("ok", "an answer"),
    1: ("check-failed", "a check failed: `max_eps`, or an expected number of a recipe; or a claim is refuted"),
    2: ("usage", "flags or recipe are wrong"),
    3: ("unsupported", "no proven answer for this combination, or the target is out of reach; or a claim is open"),
    4: ("environment", "a file, data set, GPU or package is missing, a disk is full or read-only, access is denied"),
    70: ("bug", "a bug in wpriv; please report it with the command line"),
    75: ("interrupted", "a training was interrupted and saved; `resume=True` continues it"),
    130: ("interrupted", "interrupted (Ctrl-C)"),
    141: ("closed", "the reader of the results closed the pipe"),
}


# the place of a fault: the file as the user named it, line and column from 1
Place = tuple[str, int, int]


class WprivError(Exception):
    """Base of all errors raised on purpose; the message is one short paragraph: wanted, found, what to change.

    ``place`` is where the fault stands in a file, if that is known.
    """

    exit_code = 70
    place: Place | None = None

    def at(self, place: str) -> WprivError:
        """Return this error with the place of the fault, such as a file and an entry, before its message."""
        return type(self)(f"{place}: {self}")


@contextlib.contextmanager
def placed(place: str) -> Iterator[None]:
    """Name the place of a fault, where it is not "", before the message of an error that is raised inside."""
    try:
        yield
    except WprivError as error:
        raise (error.at(place) if place else error) from None


class CheckFailed(WprivError):
    """A computed number fails a check (``expect`` rows, ``--max-eps``)."""

    exit_code = 1


class UsageError(WprivError):
    """The flags, the recipe or the arguments of a function are wrong."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that does not exist, with the nearest known name, and the list of all where it is short.

    Reads "no mechanism called 'gaus'; did you mean 'gauss'? `wpriv list mechanisms` names all".

    Args:
        kind: what is named, in the singular: "mechanism", "column".
        word: the name given; at most its first 60 characters are shown.
        known: the names that exist, in the order in which the message lists them.
        place: where the name stands, such as a file or a flag; the message begins with it.
        owner: what has the names, such as a mechanism; reads "gauss has no parameter 'sigm'" instead.
        hint: a sentence in the place of the suggestion, with its leading punctuation: ": it is a mechanism."
    """

    def __init__(
        self, kind: str, word: str, known: Sequence[str], place: str = "", owner: str = "", hint: str = ""
    ) -> None:
        super().__init__(kind, word, tuple(known), place, owner, hint)  # all arguments, so that it can be pickled

    def at(self, place: str) -> UnknownName:
        kind, word, known, inner, owner, hint = self.args
        return UnknownName(kind, word, known, f"{place}: {inner}" if inner else place, owner, hint)

    def __str__(self) -> str:
        kind, word, known, place, owner, hint = self.args
        subject = f"{owner} has no {kind} {word[:60]!r}" if owner else f"no {kind} called {word[:60]!r}"
        return f"{place}{': ' * bool(place)}{subject}{hint or instead(word, known, kind)}"


class Unsupported(WprivError):
    """No proven answer exists for this combination, or the target cannot be reached."""

    exit_code = 3


class MissingResource(WprivError):
    """Something outside the program is missing: a data set, a GPU, an optional package."""

    exit_code = 4


# the extra of wpriv that brings a package, by the name of the module
EXTRAS = {
    **dict.fromkeys(("torch", "PIL", "safetensors", "mpmath", "joblib"), "train"),
    **{name: name for name in ("datasets", "tensorboard", "mlflow", "wandb")},
    "pywt": "wavelets",
    "jsonschema": "registry",
    "submitit": "slurm",
    "sklearn": "sklearn",
    "flwr": "flower",
    "lightning": "lightning",
    "accelerate": "llm",
    "sqlalchemy": "ledger",
    **dict.fromkeys(("starlette", "uvicorn"), "ledger-serve"),
    "psycopg": "postgres",
    **dict.fromkeys(("pyarrow", "sqlglot"), "release"),
    "opacus": "opacus",
    "dp_accounting": "dp-accounting",
}
_PACKAGES = {
    "PIL": "pillow",
    "pywt": "PyWavelets",
    "flint": "python-flint",
    "sklearn": "scikit-learn",
    "dp_accounting": "dp-accounting",
}


def lacking(module: str, user: str, extra: str = "") -> MissingResource:
    """Return the error that a module is not installed, with what to install: by default the extra that brings it."""
    package, extra = _PACKAGES.get(module, module), extra or EXTRAS.get(module, "")
    advice = f"'wpriv[{extra}]'" if extra else package
    return MissingResource(f"{user} needs the Python package {package}, which is not installed: pip install {advice}")


def require(module: str, user: str, extra: str = "") -> None:
    """Refuse to go on without a module; see ``lacking``.

    Raises:
        MissingResource: it is not installed.
    """
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise lacking(module, user, extra)


class FaultyRecords(MissingResource):
    """A data set is there, and its records are not as wanted: a cell is no number, a picture is damaged."""

    exit_code = 2


class Interrupted(WprivError):
    """The job was stopped by a signal; its progress is saved and it can be resumed."""

    exit_code = 75


ADVICE = "name another place with `out`"
"""The advice in an error about a file that cannot be written, unless the caller of ``of_file`` gives another."""


def of_file(error: OSError, path: str | Path, action: str = "written", advice: str = ADVICE) -> WprivError:
    """Convert an error of the operating system at a file into one of wpriv that names the file.

    Args:
        error: the error of the operating system. path: the file or folder.
        action: what failed, as a participle: "written", "read".
        advice: what to change, in the imperative and without a full stop.
    Returns:
        UsageError where the path itself is wrong (a file where a folder is wanted, a name that is too long), else
        MissingResource (a full or read-only disk, a missing permission, no such file).
    """
    message = f"{path} cannot be {action}: {error.strerror or error}"
    sentence = f"{advice[0].upper()}{advice[1:]}"
    if error.errno in WRONG_PATH:
        return UsageError(f"{message}. {sentence}")
    if action == "written":
        sentence = f"Free the disk, allow writing there, or {advice}"
    return MissingResource(f"{message}. {sentence}")
