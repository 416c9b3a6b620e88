"""Colour and live progress, on a terminal only.

Words and numbers do not depend on the terminal, which adds colour, and on standard error progress that vanishes when
the work is done. rich is imported only if a stream is a terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY = 1.0  # seconds before work that is usually short shows its progress
BAR_WIDTH = 24
# of table cells, which are at least two blanks apart
STYLES = {
    "certified|exact|ok|holds": "green",
    "upper-bound": "cyan",
    "approximate|as-published|statistical|not met": "yellow",
    "MISSED|fails": "bold red",
}


def is_live(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that may have colour: NO_COLOR is kept."""
    return is_live(stream) and not os.environ.get("NO_COLOR")


def print_table(table: str) -> None:
    """Print a table to standard output, on a terminal with a bold header and coloured claims and verdicts.

    Args:
        table: the lines of the table, the header first, columns at least two blanks apart.
    """
    if not has_colour(sys.stdout):
        print(table)
        return
    from rich.text import Text

    text = Text(table)
    # the table of a sweep has a line above its header, which names the computed quantity
    header = re.match(r"(?:.* by\n)?.*", table)
    text.stylize("bold", 0, header.end() if header else 0)
    for words, style in STYLES.items():
        text.highlight_regex(rf"(?m)(?:(?<=  )|(?<=^))(?:{words})(?=  |$)", style)
    _console(sys.stdout).print(text, soft_wrap=True)


def _console(stream: TextIO) -> Any:
    from rich.console import Console

    return Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)


def _bars(*columns: Any) -> Progress:
    """Return a display on standard error that vanishes when it stops, and does not redirect other output."""
    from rich.progress import Progress

    return Progress(
        *columns, console=_console(sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False
    )


class Training:
    """Progress of trainings: a bar with steps, eps and the time left, below the lines that stay.

    It is a listener and a meter of ``wpriv.run.training.progress``.
    """

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        count, field = TextColumn("{task.completed:.0f} of {task.total:.0f}"), TextColumn("{task.fields[eps]}")
        self.bars = _bars(TextColumn("{task.description}"), BarColumn(BAR_WIDTH), count, field, TimeRemainingColumn())
        self.task: TaskID | None = None
        self.sweep: TaskID | None = None

    def __call__(self, line: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        self.bars.console.print(Text(f"wpriv: {line}"), soft_wrap=True)

    def advance(self, step: int, steps: int, eps: float | None) -> None:
        """Show that a step is done, and eps at the end of the last epoch."""
        spent = "" if eps is None else f"eps {eps:.4g}"
        if self.task is None:
            self.bars.start()
            self.task = self.bars.add_task("step", total=steps, completed=step - 1, eps=spent)
        self.bars.update(self.task, completed=step, total=steps, eps=spent)

    def cells(self, done: int, total: int) -> None:
        """Show how many trainings of a sweep are done."""
        if self.task is not None:
            self.bars.remove_task(self.task)
            self.task = None
        if self.sweep is None:
            self.bars.start()
            self.sweep = self.bars.add_task("training", total=total, eps="")
        self.bars.update(self.sweep, completed=done, total=total)


@contextlib.contextmanager
def training() -> Iterator[Callable[[str], None]]:
    """Yield a listener to the progress of trainings: it prints their lines, on a terminal above a bar."""
    if not is_live(sys.stderr):
        yield _line
        return
    listener = Training()
    try:
        yield listener
    finally:
        listener.bars.stop()


def _line(line: str) -> None:
    print(f"wpriv: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function of (done, total) that shows a bar after ``DELAY`` seconds; None off a terminal."""
    if not is_live(sys.stderr):
        yield None
        return
    state = {"completed": 0, "total": 1}
    with _delayed(what, state) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal how long work has taken, after ``DELAY`` seconds."""
    if not is_live(sys.stderr):
        yield
        return
    with _delayed(what, {"total": None}):
        yield


@contextlib.contextmanager
def _delayed(what: str, state: dict[str, Any]) -> Iterator[Callable[..., None]]:
    """Start a display after ``DELAY`` seconds in another thread, unless the work is done; yield its update function."""
    lock = threading.Lock()
    shown: list[tuple[Progress, TaskID]] = []
    over = False

    def start() -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        known = state["total"] is not None
        count = (BarColumn(BAR_WIDTH), TextColumn("{task.completed:.0f} of {task.total:.0f}"), TimeRemainingColumn())
        bars = _bars(
            TextColumn("{task.description}"), *(count if known else (SpinnerColumn("line"), TimeElapsedColumn()))
        )
        with lock:
            if not over:
                shown.append((bars, bars.add_task(what, **state)))
                bars.start()

    def update(**values: Any) -> None:
        with lock:
            state.update(values)
            for bars, task in shown:
                bars.update(task, **values)

    timer = threading.Timer(DELAY, start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        with lock:
            over = True
            for bars, _ in shown:
                bars.stop()
