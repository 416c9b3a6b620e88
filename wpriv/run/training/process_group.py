"""Several processes that train as one (torchrun): the first of them reads and writes the folder, and the others follow it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from wpriv.errors import WprivError


def is_main() -> bool:
    """Whether this process is the only one, or the first of several (torchrun)."""
    return int(os.environ.get("WORLD_SIZE", "1")) < 2 or os.environ.get("RANK", "0") == "0"


def together(what: Callable[[], Any]) -> Any:
    """Run a function in the first of several processes, and return its result or raise its error in all of them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return what()
    from wpriv.engine import distributed

    distributed.join()
    outcome: Any = None
    if distributed.is_main():
        try:
            outcome = what()
        except WprivError as error:
            outcome = error
    outcome = distributed.broadcast(outcome)
    if isinstance(outcome, WprivError):
        distributed.leave()
        raise outcome
    return outcome
