"""What the command line prints on, streams full, closed and of any encoding: colour, progress, lines, tables and JSON.

Results go to standard output: if they cannot be written, the command fails. Notes, warnings and progress go to standard
error: if those cannot be written they are dropped, so that a training does not end because nobody watches it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from wpriv._version import __version__
from wpriv.cli.flags import as_flags
from wpriv.cli.parsing import width
from wpriv.errors import MissingResource, WprivError
from wpriv.files.durable_writes import plain
from wpriv.numerics.numbers import exponents

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from wpriv.core.guarantee import Guarantee


class ReaderGone(WprivError):
    """The reader of the results has closed the pipe, as ``head`` does; the exit code is that of SIGPIPE in a shell."""

    exit_code = 141


class _Stream:
    """A text stream that writes characters missing from its encoding as escapes.

    ``failed`` is called with the error where something cannot be written, also as the stream was closed (ValueError).
    """

    def __init__(self, stream: TextIO, failed: Callable[[OSError | ValueError], None]):
        self._stream, self._failed = stream, failed

    def __getattr__(self, name: str) -> object:
        # the parser would write its help to the buffer, past this guard, if the encoding is ASCII
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text and return the number of its characters."""
        if text == "":
            return 0  # the parser tries whether a stream takes text
        if _watch is not None:
            _watch.erase()
        with self._guarded():
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several pieces of text, one after another."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        with self._guarded():
            self._stream.flush()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            _discard(self._stream)
            self._failed(error)


def _no_results(error: OSError | ValueError) -> None:
    """Raise ReaderGone if the pipe is closed, MissingResource if the disk is full."""
    if isinstance(error, BrokenPipeError):
        raise ReaderGone("the reader of standard output has closed it") from None
    reason = getattr(error, "strerror", None) or error
    raise MissingResource(
        f"standard output cannot be written: {reason}. Free the disk, or send the results to another place"
    ) from None


def _discard(stream: TextIO) -> None:
    """Drop the buffer of a stream, which the interpreter would write at exit, with the same error."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()


@contextlib.contextmanager
def notes() -> Iterator[None]:
    """Guard ``sys.stderr`` while a block runs: text that cannot be written is dropped."""
    outer = sys.stderr
    sys.stderr = cast(TextIO, _Stream(_null_stream(2) if outer is None else outer, lambda error: None))
    try:
        yield
    finally:
        sys.stderr = outer


@contextlib.contextmanager
def results() -> Iterator[None]:
    """Guard ``sys.stdout`` while a block runs, and flush it at the end.

    Raises:
        MissingResource: standard output is closed; this is detected before any work is done.
    """
    outer = sys.stdout
    if outer is None:
        _null_stream(1)  # or the next file that is opened becomes standard output
        raise MissingResource("results need standard output, and it is closed. Send them to a file, or to /dev/null")
    sys.stdout = cast(TextIO, _Stream(outer, _no_results))
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = outer


def _null_stream(number: int) -> TextIO:
    """Return a stream in place of a closed one, so that no file of the program gets its number."""
    null = os.open(os.devnull, os.O_WRONLY)
    if null < number:  # a lower one is closed as well
        os.dup2(null, number)
        null = number
    return open(null, "w", encoding="utf-8", closefd=False)


# Colour and live progress, on a terminal only.
#
# Words and numbers do not depend on the terminal, which adds colour, and on standard error progress that vanishes when
# the work is done. rich is imported only if a stream is a terminal.

DELAY = 1.0  # seconds before work that is usually short shows its progress
BAR_WIDTH = 24
LEAST_CELL = 16  # of a cell whose text is broken, in characters
# of claims and verdicts: in cells, which are at least two blanks apart, behind a bracket, and in "X is proved:"
STYLES = {
    "certified|exact|met|holds|proved|consistent|reproduced": "32",
    "upper bound|upper-bound": "36",
    "APPROXIMATE|approximate|as published|as-published|statistical|above|partly|open|undecided|cannot contradict": "33",
    "contradicted|fails": "35",
    "MISSED|refuted|VIOLATED": "1;31",
}
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
_PLACES = (r"(?:(?<=  )|(?<=^)|(?<=\()|(?<= is ))(", r")(?=  |$|[,):])")
_STYLED = [(re.compile(f"{_PLACES[0]}{words}{_PLACES[1]}", re.M), code) for words, code in STYLES.items()]


def is_live(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that may have colour: NO_COLOR is kept."""
    return is_live(stream) and not os.environ.get("NO_COLOR")


def coloured(text: str, *, bold: bool = False) -> str:
    """Return text of a result as it is printed: on a terminal bold if asked, and with claims and verdicts in colour."""
    if not has_colour(sys.stdout):
        return text
    for pattern, code in _STYLED:
        text = pattern.sub(f"\x1b[{code}m\\1\x1b[{'22;39' if code[0] == '1' and not bold else '39'}m", text)
    return f"\x1b[1m{text}\x1b[0m" if bold else text


def wrapped(text: str, hanging: int = 2, columns: int | None = None) -> list[str]:
    """Break a line between words where it is wider than standard output.

    Args:
        hanging: blanks in front of all further lines, after those that the first line begins with.
        columns: another width.
    """
    blanks = " " * (len(text) - len(text.lstrip(" ")) + hanging)
    return textwrap.wrap(exponents(text), columns or width(), subsequent_indent=blanks, **_WHOLE_WORDS) or [""]


def _bars(*fields: str) -> Progress:
    """Return a display on standard error that vanishes when it stops, and does not redirect other output."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    class Bars(Progress):
        def start(self) -> None:
            if _watch is not None:
                _watch.bars.add(id(self))
                _watch.erase()
            super().start()

        def stop(self) -> None:
            super().stop()
            if _watch is not None:
                _watch.bars.discard(id(self))

    texts = map(TextColumn, ("{task.completed:.0f} of {task.total:.0f}", *fields))
    columns = (TextColumn("{task.description}"), BarColumn(BAR_WIDTH), *texts, TimeRemainingColumn())
    console = Console(file=sys.stderr, force_terminal=True, highlight=False, markup=False, emoji=False)
    return Bars(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)


class Training:
    """Progress of trainings, a listener and meter of ``wpriv.training.progress``: a bar below lines that stay."""

    def __init__(self) -> None:
        self.bars = _bars("{task.fields[eps]}")
        self.task: TaskID | None = None
        self.sweep: TaskID | None = None

    def __call__(self, line: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        self.bars.console.print(Text("\n".join(_on_stderr(line))), soft_wrap=True)

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
        yield tell
        return
    listener = Training()
    try:
        yield listener
    finally:
        listener.bars.stop()


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function of (done, total) that shows a bar after ``DELAY`` seconds; None off a terminal."""
    if not is_live(sys.stderr):
        yield None
        return
    state: dict[str, Any] = {"completed": 0, "total": 1}
    shown: list[tuple[Progress, TaskID]] = []

    def start() -> None:  # in another thread
        bars = _bars()
        bars.start()
        shown.append((bars, bars.add_task(what, **state)))

    def update(done: int, total: int) -> None:
        state.update(completed=done, total=total)
        for bars, task in shown:
            bars.update(task, completed=done, total=total)

    timer = threading.Timer(DELAY, start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        timer.join()  # a bar that is about to start must have started before it is stopped
        for bars, _ in shown:
            bars.stop()


class _Watch:
    """A line on a terminal that says what is done if nothing was printed for ``DELAY`` seconds; it is erased."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.process, self.lock, self.ended = stream, os.getpid(), threading.Lock(), threading.Event()
        self.bars: set[int] = set()
        self.shown = ""
        self.begin("working")
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def begin(self, what: str) -> None:
        """Name what is done from now on."""
        self.what, self.since, self.last = what, time.monotonic(), time.monotonic()

    def erase(self) -> None:
        """Erase the line, and wait for the next silence."""
        if os.getpid() != self.process:  # a fork has no thread, and perhaps a lock that nobody opens
            return
        with self.lock:
            self.last = time.monotonic()
            self._write("")

    def end(self) -> None:
        """Erase the line for good."""
        self.ended.set()
        self.thread.join()
        self.erase()

    def _run(self) -> None:
        while not self.ended.wait(min(DELAY, 0.2)):
            with self.lock:
                now = time.monotonic()
                if now - self.last >= DELAY and not self.bars:
                    seconds = int(now - self.since)
                    self._write(f"wpriv: {self.what}, {seconds // 60}:{seconds % 60:02}")

    def _write(self, text: str) -> None:
        if text == self.shown:
            return
        self.shown = text
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(f"\r\x1b[2K{text[: width(self.stream) - 1]}")
            self.stream.flush()


_watch: _Watch | None = None  # of the command that runs, where standard error is a terminal


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Show on a terminal what a command does whenever it prints nothing for ``DELAY`` seconds."""
    global _watch
    if not is_live(sys.stderr):
        yield
        return
    _watch = watch = _Watch(getattr(sys.stderr, "_stream", sys.stderr))
    try:
        yield
    finally:
        _watch = None
        watch.end()


def doing(what: str) -> None:
    """Name what is done from now on, such as "calibrating", for a terminal on which nothing is printed meanwhile."""
    if _watch is not None:
        _watch.begin(what)


# Print lines, tables and JSON to standard output, notes and warnings to standard error.


def emit(*lines: str) -> None:
    """Print lines of a result to standard output as they are."""
    for line in lines:
        print(line)


def emit_words(*lines: str) -> None:
    """Print sentences of a result, broken between words at the width of standard output."""
    emit(*(coloured(part) for line in lines for part in wrapped(line)))


def emit_bold(line: str, *others: str) -> None:
    """Print sentences, the first one in bold where standard output is a terminal that may have colour."""
    emit(*(coloured(part, bold=True) for part in wrapped(line)))
    emit_words(*others)


def emit_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print labels and their texts as two columns; a label that is repeated is shown once."""
    column = max((len(label) for label, _ in facts), default=0) + 4
    shown = ""
    for label, text in facts:
        name = "" if label == shown else label
        shown = label
        for number, part in enumerate(textwrap.wrap(exponents(text), max(width() - column, 30), **_WHOLE_WORDS)):
            print(f"{'' if number else '  ' + name:<{column}}{part}")


def emit_json(data: Mapping[str, object]) -> None:
    """Print one JSON object; infinities and NaN are the strings "inf", "-inf" and "nan"."""
    print(json.dumps(plain(data), allow_nan=False))


def emit_result(schema: str, **data: object) -> None:
    """Print a result as one JSON object, with its schema and the version of this program."""
    emit_json({"schema": schema, **data, "version": __version__})


def emit_answer(
    as_json: bool, data: Mapping[str, object], line: str, facts: Sequence[tuple[str, str]], schema: str = ""
) -> None:
    """Print an answer as one JSON object, perhaps as ``emit_result``, or else as a sentence with facts below it."""
    if not as_json:
        emit_bold(line)
        emit_facts(facts)
    elif schema:
        emit_result(schema, **data)
    else:
        emit_json(data)


def emit_rows(rows: Sequence[Mapping[str, object]], schema: str, **more: object) -> None:
    """Print rows as one JSON object."""
    emit_result(schema, rows=list(rows), **more)


def emit_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 0, notes: Sequence[str] = ()
) -> None:
    """Print a table: on a terminal at its width with header and colours, else one line a row, for programs."""
    rows = [[exponents(text) for text in row] for row in rows]
    head, body = table(header, rows, width() - indent if is_live(sys.stdout) else sys.maxsize)
    emit(*(coloured(" " * indent + line, bold=True) for line in head))
    texts = iter(notes)
    for lines in body:
        emit(*(coloured(" " * indent + line) for line in lines))
        emit(*wrapped(f"    {next(texts, '')}", 0) if notes else ())


def fits(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether a table is no wider than standard output without breaking its cells."""
    head, body = table(header, rows)
    return max(map(len, (*head, *(lines[0] for lines in body)))) <= width()


def _on_stderr(text: str, begin: str = "wpriv:") -> list[str]:
    """The lines of a message on standard error: a terminal breaks sentences between words, and quoted lines stay."""
    lines = f"{begin} {exponents(text)}".splitlines()
    if not is_live(sys.stderr):
        return lines
    columns = width(sys.stderr)
    return [part for line in lines for part in ([line] if line.startswith(" ") else wrapped(line, columns=columns))]


def tell(text: str) -> None:
    """Print a message to standard error."""
    print(*_on_stderr(text), sep="\n", file=sys.stderr, flush=True)


def say(kind: str, *lines: str) -> None:
    """Print notes or warnings to standard error, with arguments in backticks as flags; file names stay unchanged."""
    begin = f"wpriv: {kind}:"
    yellow = kind == "warning" and has_colour(sys.stderr)
    for line in lines:
        for part in _on_stderr(line if kind == "wrote" else as_flags(line), begin):
            print(part.replace(begin, f"\x1b[33m{begin}\x1b[0m", 1) if yellow else part, file=sys.stderr)


def print_with_certificate(show: Callable[[], None], row: Callable[[], Guarantee], path: str | None) -> None:
    """Write the certificate of an answer where one was asked for, and print the answer.

    The file comes first, since the reader of the answer may close the pipe. The answer is printed even where the file
    cannot be written.
    """
    notes = []
    try:
        if path is not None:
            from wpriv.accounting import certificates

            notes.append(certificates.write(row(), path))
    finally:
        show()
    say("wrote", *notes)


def warn(lines: Iterable[str]) -> None:
    """Print warnings to standard error."""
    say("warning", *lines)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: int = sys.maxsize
) -> tuple[list[str], list[list[str]]]:
    """Return the lines of the header and of each row of a table, its columns two blanks apart.

    Columns without any text are left out. Where the table is wider than ``columns``, the widest columns of several
    words are broken between words.
    """
    kept = [i for i in range(len(header)) if not rows or any(row[i] for row in rows)]
    lines = [[line[i] for i in kept] for line in (header, *rows)]
    cells = list(zip(*lines, strict=True))
    widths = [max(map(len, each)) for each in cells]
    least = [max(len(word) for text in each for word in (text.split() or [""])) for each in cells]
    for i in sorted(range(len(widths)), key=lambda i: widths[i], reverse=True):
        excess = sum(widths) + 2 * (len(widths) - 1) - columns
        widths[i] = max(widths[i] - max(excess, 0), min(least[i], widths[i]), min(LEAST_CELL, widths[i]))
    printed = []
    for line in lines:
        parts = [textwrap.wrap(text, max(size, 1), **_WHOLE_WORDS) for text, size in zip(line, widths, strict=True)]
        printed.append(
            [
                "  ".join(text.ljust(size) for text, size in zip(row, widths, strict=True)).rstrip()
                for row in itertools.zip_longest(*parts, fillvalue="")
            ]
            or [""]
        )
    return printed[0], printed[1:]


def cell(value: object) -> str:
    """Return a value as a table cell: six digits of a float, yes or no, empty for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
