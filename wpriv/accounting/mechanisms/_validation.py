"""What several mechanisms share: checks of parameters, and guarantees by Renyi divergences alone."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.mechanism import Mechanism
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.numerics.arrays import Array

CSV_FILE = "a CSV file as 'file'"
NO_BATCH = "each person sends one report, so there is no batch to draw. Leave out `sampling` and `rate`"
MAX_EPS0 = 1e100  # losses up to this can be added up over any number of compositions


def given_response(mechanism: Mechanism, eps0: float, delta0: float) -> None:
    """Refuse an eps0 whose compositions overflow, and a delta0 of at least 1."""
    if eps0 > MAX_EPS0:
        raise UsageError(f"{mechanism.name}: eps0 must be at most {MAX_EPS0:g}; found {eps0:g}")
    if not delta0 < 1:
        raise UsageError(f"{mechanism.name}: delta0 must be less than 1; found {delta0:g}")


@dataclass(frozen=True)
class RenyiGuarantee(Mechanism):
    """Base of the mechanisms of which only bounds of the Renyi divergences are known; they define ``renyi_bound``."""

    why_not_sampled: ClassVar[str] = (
        "bounds of its Renyi divergences do not determine those of the same mechanism on a sample of the records. "
        "State the guarantee of the sampled release itself, without `sampling`, or describe its noise (`mech='gauss'`)"
    )

    def pair(self) -> LossPair:
        raise Unsupported(
            f"{self.name} states Renyi divergences, which do not determine the distribution of the privacy loss: only "
            f"upper bounds are known, through the divergences. Use `accountant='rdp'`"
        )


class RenyiBound(LossPair):
    """Upper bounds of the Renyi divergences of an unknown pair, the same in both directions.

    All divergences of finite order that it bounds are finite, so that no outcome is possible on one neighbour only.
    """

    symmetric = True

    def tails(self, eps: Array) -> Tails:
        raise Unsupported("bounds of Renyi divergences do not determine the tails of the privacy loss. Use rdp")


@contextmanager
def reading(mechanism: str, path: str, wanted: str, not_a_path: str) -> Iterator[tuple[int, ...]]:
    """Yield what changes with the content of a regular file; its size is last. Errors within are about that file."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise MissingResource(f"{mechanism}: {path!r} is not a regular file. Give {wanted}")
        yield status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingResource(f"{mechanism}: cannot read {path!r}: {reason}. Give {wanted}") from error
    except ValueError as error:
        raise UsageError(f"{mechanism}: {not_a_path}; found {path!r}") from error
