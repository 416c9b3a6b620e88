"""Standard output and standard error as the command line uses them: full, closed and of any encoding.

Results go to standard output: if they cannot be written, the command fails. Notes, warnings and progress go to standard
error: if those cannot be written they are dropped, so that a training does not end because nobody watches it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from wpriv.errors import MissingResource, WprivError


class ReaderGone(WprivError):
    """The reader of the results has closed the pipe, as ``head`` does; the exit code is that of SIGPIPE in a shell."""

    exit_code = 141


class _Stream:
    """A text stream that writes characters missing from its encoding as escapes."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        # the parser would write its help to the buffer, past this guard, if the encoding is ASCII
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text and return the number of its characters."""
        if text == "":
            return 0  # the parser tries whether a stream takes text
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

    def _guarded(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which errors of the stream are dealt with."""
        raise NotImplementedError


class Results(_Stream):
    """Standard output.

    Raises:
        ReaderGone: the reader has closed the pipe. MissingResource: the text cannot be written, as on a full disk.
    """

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            _discard(self._stream)
            raise ReaderGone("the reader of standard output has closed it") from None
        except (OSError, ValueError) as error:  # a ValueError: the stream was closed
            _discard(self._stream)
            reason = getattr(error, "strerror", None) or error
            raise MissingResource(
                f"standard output cannot be written: {reason}. Free the disk, or send the results to another place"
            ) from None


class Notes(_Stream):
    """Standard error: text that cannot be written is dropped."""

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # a ValueError: the stream was closed
            _discard(self._stream)


def _discard(stream: TextIO) -> None:
    """Drop the buffer of a stream, which the interpreter would write at exit, with the same error."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()


@contextlib.contextmanager
def notes() -> Iterator[None]:
    """Guard ``sys.stderr`` while a block runs."""
    outer = sys.stderr
    sys.stderr = cast(TextIO, Notes(_null_stream(2) if outer is None else outer))
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
    sys.stdout = cast(TextIO, Results(outer))
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
