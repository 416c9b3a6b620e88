"""JSON files in a results folder, such as expect.json and provenance.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wpriv.errors import UsageError, of_file


def read(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        UsageError: it is damaged, or holds something else. MissingResource: it is missing, or cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise of_file(error, path, "read", "run the recipe again") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} is damaged: it holds no JSON object")
    return data
