"""The errors wpriv raises on purpose, each with the exit code of the command line."""


class WprivError(Exception):
    """One short paragraph: what was wanted, what was found, what to change."""

    exit_code = 70


class CheckFailed(WprivError):
    """A number was computed but does not meet what was expected of it (``expect`` rows, ``--max-eps``)."""

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
    """The job was asked to stop; what it did is saved, and it can be resumed."""

    exit_code = 75
