"""The errors that wpriv raises on purpose, each with the exit code of the command line.

Messages speak of arguments and parameters as Python has them, in backticks: `tol`, `sampling='poisson'`, `fresh=True`.
The command line prints these as flags (--tol, --sampling poisson, --fresh) where the command has such a flag, and other
mechanism parameters with a value as --param name=value (``wpriv.cli.flags.as_flags``).
"""

from __future__ import annotations

import errno
from pathlib import Path

# errors of the operating system that mean a wrong path, not a full disk or a missing permission
WRONG_PATH = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP)


class WprivError(Exception):
    """Base of all errors; the message is one short paragraph: what was wanted, what was found, what to change."""

    exit_code = 70


class CheckFailed(WprivError):
    """A computed number does not meet a condition (``expect`` rows of a recipe, ``--max-eps``)."""

    exit_code = 1


class UsageError(WprivError):
    """The flags, the recipe or the arguments of a function are wrong."""

    exit_code = 2


class Unsupported(WprivError):
    """No proven answer exists for this combination, or the target cannot be reached."""

    exit_code = 3


class MissingResource(WprivError):
    """Something outside the program is missing: a data set, a GPU, an optional package."""

    exit_code = 4


class Interrupted(WprivError):
    """The job was asked to stop; its state is saved, and it can be resumed."""

    exit_code = 75


def of_file(
    error: OSError, path: str | Path, done: str = "written", other: str = "name another place with --out"
) -> WprivError:
    """Turn an error of the operating system about a file into one of wpriv that names the file.

    Args:
        error: the error of the operating system. path: the file or folder.
        done: the operation that failed, as a participle. other: advice that holds for every cause.
    Returns:
        UsageError where the path itself is wrong (a file where a folder is wanted, a name that is too long), else
        MissingResource (a full or read-only disk, a missing permission, no such file).
    """
    message = f"{path} cannot be {done}: {error.strerror or error}"
    if error.errno in WRONG_PATH:
        return UsageError(f"{message}. {other[0].upper()}{other[1:]}")
    first = "Free the disk, allow writing there, or " if done == "written" else ""
    return MissingResource(f"{message}. {first}{other}" if first else f"{message}. {other[0].upper()}{other[1:]}")
