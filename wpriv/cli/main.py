"""The entry point of the command line: it turns every error into one short paragraph and an exit code."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import typer

from wpriv._version import __version__
from wpriv.cli import output
from wpriv.cli.parsing import COMMANDS, SETTINGS, LazyGroup, ParserError, keep_text
from wpriv.errors import EXIT_CODES, MissingResource, Place, Unsupported, UsageError, WprivError, lacking
from wpriv.hints import did_you_mean, plain_key

BUG, INTERRUPTED = 70, 130
# flags of the calculator, and names of other programs, that recipes of trainings have as keys
TRAINED = ("eps", "delta", "sigma", "noise-multiplier", "epochs", "n", "batch", "rate", "sampling", "data", "model")
# flags of other commands, of which a flag that sounds alike is no spelling: --quick trains another recipe than --quiet
FORMATS = ("json", "csv", "quiet")
SCHEMA = "wpriv.error/1"

app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"wpriv {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def top(
    ctx: typer.Context,
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """How private is this, exactly? A certified privacy calculator.

    wpriv budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4

    wpriv calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000

    wpriv list mechanisms

    wpriv help budget

    wpriv help amplification

    Exit codes: 0 ok; 1 a check failed; 2 usage; 3 unsupported or out of reach; 4 environment (something is missing,
    full or not permitted); 70 a bug; 75 interrupted and resumable; 130 interrupted; 141 the output pipe was closed.
    """
    if ctx.invoked_subcommand is None:
        raise UsageError("no command given. `wpriv --help` names all, and `wpriv list` what they can be given")


class _Failure(NamedTuple):
    """The failure of a command: the message, the exit code, and the place of the fault in a file."""

    message: str
    code: int
    place: Place | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; only results go to standard output."""
    words = sys.argv[1:] if argv is None else list(argv)
    with output.notes():
        try:
            quiet = contextlib.nullcontext() if "--quiet" in words else output.watched()
            with output.results(), quiet, _warnings_as_notes():
                return _run(words)
        except output.ReaderGone as error:
            return error.exit_code
        except WprivError as error:
            failure = _Failure(_advice(error, words), error.exit_code, error.place)
        except ParserError as error:
            failure = _Failure(_parser_message(error), UsageError.exit_code)
        except (KeyboardInterrupt, typer.Abort) as error:
            inner = error.__cause__ or error.__context__
            # the parser takes every EOFError for the end of input
            failure = _unexpected(inner) if isinstance(inner, EOFError) else _Failure("interrupted", INTERRUPTED)
        except MemoryError:
            message = "this job needs more memory than is free. Raise --tol, or use --accountant rdp"
            failure = _Failure(message, Unsupported.exit_code)
        except OSError as error:
            failure = _environment(error)
        except SystemExit as error:  # the parser turns a broken pipe inside the program into this
            if not isinstance(error.__context__, OSError):
                raise
            failure = _environment(error.__context__)
        except Exception as error:  # the only place where a bug becomes an exit code
            if os.environ.get("WPRIV_DEBUG") == "1":
                raise
            failure = _unexpected(error)
        _report(failure, as_json="--json" in words)
        return failure.code


def _report(failure: _Failure, as_json: bool) -> None:
    """Print a failure on standard error: one paragraph, or one line of JSON (error.schema.json)."""
    if not as_json:
        output.tell(failure.message)
        return
    kind, _ = EXIT_CODES[failure.code]
    place = {} if failure.place is None else dict(zip(("file", "line", "column"), failure.place, strict=True))
    data = {"schema": SCHEMA, "error": kind, "message": failure.message, "exit_code": failure.code, **place}
    print(json.dumps({**data, "version": __version__}), file=sys.stderr)


@contextlib.contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print the warnings of this program's own kinds as notes, and leave those of libraries as they are."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_as_note(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if category.__module__.startswith("wpriv."):
                output.tell(f"note: {message}")
            else:
                show(message, category, *rest, **more)

        warnings.showwarning = show_as_note
        yield


def _run(words: list[str]) -> int:
    command = typer.main.get_command(app)
    keep_text(command, SETTINGS)
    if words[:1] == ["help"]:
        words = [word for word in words if word != "help"]
        is_named = bool(words) and words[0] not in COMMANDS and not words[0].startswith("-")
        words = ["list", " ".join(words)] if is_named else [*words, "--help"]
    code = command.main(args=words, prog_name="wpriv", standalone_mode=False)
    if code == INTERRUPTED:  # Typer has caught Ctrl-C
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _advice(error: WprivError, words: Sequence[str]) -> str:
    """The message with arguments in backticks as flags of the command, or what to type instead of several values."""
    from wpriv.cli.flags import as_flags, one_at_a_time

    message = str(error)
    if isinstance(error, UsageError) and (line := one_at_a_time(words)):
        return line
    if "`" not in message:
        return message
    command = typer.main.get_command(app)
    for word in words:
        inner = command.get_command(typer.Context(command), word) if hasattr(command, "get_command") else None
        if inner is None:
            break
        command = inner
    return as_flags(message, [option for parameter in command.params for option in parameter.opts])


def _unexpected(error: BaseException) -> _Failure:
    """Report an error in a Python file of the user's, a package that is not installed, or else a bug."""
    from wpriv.files import python_file

    if (failure := python_file.failure(error)) is not None:
        return _Failure(f"{failure}. WPRIV_DEBUG=1 shows the traceback", UsageError.exit_code)
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in ("", "wpriv") and importlib.util.find_spec(package) is None:
        return _Failure(str(lacking(package, "this command")), MissingResource.exit_code)
    return _Failure(
        f"a bug in wpriv ({type(error).__name__}: {error}). Please report it with the command line; "
        f"WPRIV_DEBUG=1 shows the traceback",
        BUG,
    )


def _environment(error: OSError) -> _Failure:
    """Report an error of the operating system for which no command has a message of its own."""
    if os.environ.get("WPRIV_DEBUG") == "1":
        raise error
    paths = [
        str(path) for path in (error.filename, error.filename2) if isinstance(path, (str, os.PathLike)) and str(path)
    ]
    operation = " and ".join(paths) or "a system call"
    reason = error.strerror or str(error) or type(error).__name__
    return _Failure(
        f"{operation} failed: {reason}. Check the path, the free space on the disk and the permissions",
        MissingResource.exit_code,
    )


def _parser_message(error: Any) -> str:
    """Return the parser's message as one line, with the option that was probably meant."""
    ctx: Any = getattr(error, "ctx", None)
    option: Any = getattr(error, "option_name", None)
    if ctx is None or type(error).__name__ != "NoSuchOption":
        message = " ".join(str(error.format_message()).split())
        is_missing = type(error).__name__ == "MissingParameter" and ctx is not None
        return f"{message} `{ctx.command_path} --help` shows examples" if is_missing else message
    known = sorted(name[2:] for parameter in ctx.command.params for name in parameter.opts if name.startswith("--"))
    word = option.lstrip("-")
    near = "." if (is_format := word in FORMATS) else did_you_mean(word, known, "--") or "."
    is_key = plain_key(word).replace("_", "-") in TRAINED
    if (ctx.info_name in ("train", "audit") and is_key) or (ctx.info_name == "train" and near == "." and not is_format):
        return (
            f"{ctx.command_path} has no option {option}: the recipe says how it trains. Change its keys by --set, as "
            f"in --set privacy.eps=3 --set epochs=10"
        )
    advice = f" A parameter without a flag is --param {word}=VALUE." if "param" in known and near == "." else ""
    return f"{ctx.command_path} has no option {option}{near}{advice} `{ctx.command_path} --help` names all"
