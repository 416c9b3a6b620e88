"""The steps of a run, from the JSON file that kept them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wpriv.errors import MissingResource, UsageError
from wpriv.run.number import number, shown, whole

MAX_HISTORY_BYTES = 50_000_000


def read_history(path: str | Path) -> list[dict[str, Any]]:
    """The steps of a JSON file, as mappings for ``process``; equal steps are merged, in the order they first appear.

    The file is the ledger of a training (``ledger.jsonl``), or holds a list of step mappings, or what Opacus keeps: a list of
    [noise_multiplier, sample_rate, steps], or the state of its accountant with such a list under ``history`` (Poisson-sampled
    Gauss steps of sensitivity 1).

    Raises:
        MissingResource: the file cannot be read. UsageError: it is not such a list.
    """
    if not isinstance(path, (str, Path)):
        raise UsageError(f"--history must be the path of a JSON file; found {shown(path)}")
    file = Path(path)
    try:
        if file.stat().st_size > MAX_HISTORY_BYTES:
            raise UsageError(f"--history {file}: the file has more than {MAX_HISTORY_BYTES:,} bytes; merge equal steps first")
        if file.suffix == ".jsonl":
            return _ledger(file)
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            raise MissingResource(f"--history {file}: cannot be read ({error.strerror}); give the path of a JSON file") from None
        raise UsageError(f"--history {file}: not a JSON file of steps ({_first_line(error)})") from None
    if isinstance(data, dict) and "history" in data:
        data = data["history"]
    if not isinstance(data, list) or not data:
        raise UsageError(f"--history {file}: wanted a list of steps, or of [noise_multiplier, sample_rate, steps]; found {shown(data)}")
    merged: dict[str, dict[str, Any]] = {}
    for place, item in enumerate(data, start=1):
        spec = _history_step(item, f"--history {file}, entry {place}")
        key = json.dumps({k: v for k, v in spec.items() if k != "n"}, sort_keys=True)
        merged[key] = {**spec, "n": spec["n"] + merged[key]["n"] if key in merged else spec["n"]}
    return list(merged.values())


def _ledger(file: Path) -> list[dict[str, Any]]:
    """The steps of ``wpriv train``'s ledger, all its runs together."""
    from wpriv.train import ledger

    entries = ledger.entries(file)
    if not entries:
        raise UsageError(f"--history {file}: the ledger has no step yet")
    return ledger.process(entries, "").describe()


def _history_step(item: Any, place: str) -> dict[str, Any]:
    try:
        if isinstance(item, dict):
            return {**item, "n": whole(item.get("n", 1), "n")}
        if isinstance(item, list) and len(item) == 3:
            rate = number(item[1], "sample_rate")
            sampled = {"sampling": "poisson", "rate": rate} if rate != 1 else {}
            return {"mech": "gauss", "sigma": number(item[0], "noise_multiplier"), **sampled, "n": whole(item[2], "steps")}
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    raise UsageError(f"{place}: wanted a step mapping or [noise_multiplier, sample_rate, steps]; found {shown(item)}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["nested too deeply"])[0][:120]
