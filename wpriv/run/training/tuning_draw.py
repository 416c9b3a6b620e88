"""The random choices of a tuned training: the number of runs, the candidate of each, and the order of equal scores.

They are drawn once, before the first run, and kept in a file that is deleted with the runs.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wpriv.core.repeats import Repeats
from wpriv.errors import UsageError
from wpriv.files import durable_writes
from wpriv.run.training.recipe_grid import number_of

FILE = "draw.json"
BITS = 64


@dataclass(frozen=True)
class Draw:
    """The choices of one tuned training.

    Args:
        candidates: the number of each run's candidate; their count is the number of runs.
        ties: for each run a number; of runs with equal scores the one with the largest is the best.
        fingerprint: of the training records.
    """

    candidates: list[int]
    ties: list[int]
    fingerprint: str


def draw(repeats: Repeats, candidates: int, fingerprint: str, seed: int | None) -> Draw:
    """Draw the number of runs, and the candidate of each uniformly with replacement.

    Args:
        seed: makes the choices repeatable; None takes the randomness of the operating system.
    """
    bits = secrets.randbits if seed is None else _seeded(seed)
    runs = repeats.draw(bits)
    return Draw([_below(candidates, bits) for _ in range(runs)], [bits(BITS) for _ in range(runs)], fingerprint)


def write(choices: Draw, folder: Path) -> None:
    """Force the choices to disk, before anything depends on them."""
    durable_writes.replace(folder / FILE, json.dumps(asdict(choices)) + "\n", mode=0o600)


def read(folder: Path, fingerprint: str) -> Draw | None:
    """Return the choices made before; None where none were made.

    Raises:
        UsageError: runs exist without them, they cannot be read, or the training records are others.
    """
    path = folder / FILE
    if not path.is_file():
        if any(item.is_dir() for item in folder.glob("*")):
            raise _lost(path)
        return None
    try:
        choices = Draw(**json.loads(path.read_text(encoding="utf-8")))
        sound = len(choices.candidates) == len(choices.ties)
    except (OSError, ValueError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise _lost(path)
    if choices.fingerprint != fingerprint:
        raise UsageError(
            f"{folder.parent} holds an unfinished tuned training on other records. Give it these records, or name "
            f"another folder with --out"
        )
    return choices


def _lost(path: Path) -> UsageError:
    return UsageError(
        f"{path} is missing or cannot be read, and the number of runs must not be drawn a second time. Restore it, or "
        f"begin in another folder with --out: what was trained here is spent, and its cost is added to that"
    )


def _below(count: int, bits: Callable[[int], int]) -> int:
    """A number below ``count``, uniformly, by rejection."""
    while True:
        number = bits((count - 1).bit_length()) if count > 1 else 0
        if number < count:
            return number


def _seeded(seed: int) -> Callable[[int], int]:
    """Random bits from a seed, by SHA-256 of a counter."""
    calls = 0

    def bits(count: int) -> int:
        nonlocal calls
        calls += 1
        return number_of(f"draw {calls} of seed {seed}") >> (256 - count)

    return bits


def score_of(metrics: list[dict[str, Any]], column: str, best: str) -> float:
    """The score of a finished run, larger for better ones; -inf where it is missing or no number."""
    value = metrics[-1].get(column) if metrics else None
    if not isinstance(value, (int, float)) or math.isnan(value):
        return float("-inf")
    return float(value) if best == "highest" else -float(value)
