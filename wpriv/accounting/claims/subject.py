"""Processes as a shell user names them: a file, a folder, a recipe, or words such as "gauss sigma=4"."""

from __future__ import annotations

import json
from pathlib import Path

from wpriv.accounting import build_process
from wpriv.accounting.build_process import DescribedProcess
from wpriv.config import plain_words
from wpriv.errors import Unsupported, UsageError, of_file
from wpriv.files import STDIN, read_bytes, shown_path
from wpriv.files.durable_writes import unique_keys
from wpriv.results import storage

FORMS = (
    'the folder of a training, a recipe of kind budget, a guarantee (--json) or a certificate, or words such as "gauss '
    'sigma=4 n=1000 poisson 0.01", several steps joined by " + "'
)
SUFFIXES = (".json", ".jsonl")
MAX_BYTES = 2**24


def described(text: str | Path) -> DescribedProcess:
    """The process that a text names; UsageError for a faulty one, MissingResource for a file."""
    word = str(text)
    if not word.strip():
        raise UsageError(f"wanted a process: {FORMS}; found an empty text")
    if word == STDIN:
        # JSON, a recipe, or words
        given = read_bytes(STDIN, MAX_BYTES).decode("utf-8", "replace").strip()
        if given[:1] in ("{", "["):
            return _of_json(Path(STDIN))
        return _of_recipe(STDIN) if ":" in given else described(given if given != STDIN else "")
    path = Path(word)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError):
        is_folder = is_file = False
    if is_folder:
        if _is_tuned(path / storage.STATEMENT):
            raise _best_run(word)
        return build_process.described_process(history=str(path / storage.LEDGER))
    if path.suffix in SUFFIXES and (is_file or " " not in word):
        return _of_json(path)
    if not is_file and (plain_words.is_sentence(word) or " " in word.strip()):
        words = plain_words.parse(word)
        return build_process.described_steps(words.steps, **words.shared)
    return _of_recipe(word)


def _of_json(path: Path) -> DescribedProcess:
    """The process of a guarantee or of a certificate, or else of a history."""
    try:
        content = read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise of_file(error, path, "read", f"give {FORMS}") from None
    try:
        data = json.loads(content, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("process"), list):
        steps = [dict(step) for step in data["process"] if isinstance(step, dict)]
        if len(steps) != len(data["process"]) or not steps:
            raise UsageError(
                f"{shown_path(path)}: `process` must be a list of steps; found {str(data['process'])[:80]}"
            )
        if "repeats" in data:
            raise _best_run(shown_path(path))
        if data.get("records"):
            steps = [{**step, "records": data["records"]} for step in steps]
        adjacency = data.get("adjacency")
        return build_process.described_steps(steps, None if adjacency is None else str(adjacency), data.get("group"))
    return build_process.described_process(history=str(path))


def _of_recipe(name: str) -> DescribedProcess:
    from wpriv.accounting import load_recipe

    loaded = load_recipe.read(name)
    if loaded.kind == "budget":
        described, _, question = load_recipe.budget(name)
        if "repeats" in question:
            raise _best_run(shown_path(name))
        return described
    advice = "give the folder of its training" if loaded.kind == "train" else "give its process in words"
    raise UsageError(
        f"{shown_path(name)} is a recipe of kind {loaded.kind!r}, which describes no single process; {advice}: {FORMS}"
    )


def _is_tuned(statement: Path) -> bool:
    """Tell whether a statement is that of the best of several runs; one that cannot be read is left to its readers."""
    try:
        return "tuning" in json.loads(statement.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _best_run(name: str) -> Unsupported:
    """The refusal of the best of K runs, of which only upper bounds are known."""
    return Unsupported(
        f"{name} is about the best of a random number of runs (repeats), whose curve is known from above only, and "
        f"which is no process of steps. Leave out repeats for one run, or ask `wpriv budget`"
    )
