"""Data-parallel training in several processes (torchrun): only the first reads and writes the results folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from wpriv.errors import WprivError


def is_main() -> bool:
    """Tell whether this process is the only one, or the first of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) < 2 or os.environ.get("RANK", "0") == "0"


def together(function: Callable[[], Any]) -> Any:
    """Run a function in the first of several processes, and return its result or raise its error in all of them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return function()
    from wpriv.engine import distributed

    distributed.join()
    outcome: Any = None
    if distributed.is_main():
        try:
            outcome = function()
        except WprivError as error:
            outcome = error
    outcome = distributed.broadcast(outcome)
    if isinstance(outcome, WprivError):
        distributed.leave()
        raise outcome
    return outcome
