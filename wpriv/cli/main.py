"""The command line: registers the commands, and turns every error into one short paragraph and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from wpriv._version import __version__
from wpriv.cli import streams
from wpriv.errors import MissingResource, Unsupported, UsageError, WprivError

COMMANDS = ("budget", "calibrate", "compare", "privatize", "train", "plot", "data", "recipe")
BUG, INTERRUPTED = 70, 130
# typer keeps its own copy of click in newer versions: the base of its errors is found through a name that all versions export
ClickError = cast(type[Exception], typer.BadParameter.__mro__[2])
# a fixed width: what is printed never depends on the terminal
SETTINGS: dict[str, Any] = {"terminal_width": 100, "help_option_names": ["-h", "--help"]}


class Commands(TyperGroup):
    """The commands are the modules named in COMMANDS, each imported only when it is needed.

    A module has a function ``command``, or a typer ``app`` with commands of its own.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"wpriv.cli.{name}")
        own = getattr(module, "app", None)
        if own is None:
            own = typer.Typer(add_completion=False, rich_markup_mode=None)
            own.command(name, context_settings=SETTINGS)(module.command)
        return _as_typed(typer.main.get_command(own))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            raise UsageError(f"no command called {args[0]!r}{near(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


class AsTyped:
    """Takes a flag's text as it is."""

    def coerce(self, value: Any, **_: Any) -> Any:
        return value


def _as_typed(command: Any) -> Any:
    """Spares flags that hold text the typed reading of newer typers, which loads pydantic and a third of the start time with it."""
    for parameter in [*command.params, command.get_help_option(typer.Context(command, **SETTINGS))]:
        if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, list[str], bool):
            parameter._runtime_param = AsTyped()
    make = command.make_parser

    def make_parser(ctx: Any) -> Any:
        parser = make(ctx)
        _once(parser)
        return parser

    command.make_parser = make_parser
    for inner in getattr(command, "commands", {}).values():
        _as_typed(inner)
    return command


def near(word: str, known: Sequence[str], prefix: str = "") -> str:
    """'; did you mean ...? Known: ...' for an unknown command or option; ``prefix`` is what options begin with."""
    from wpriv.hints import did_you_mean

    return f"{did_you_mean(word, known, prefix) or '.'} Known: {', '.join(prefix + each for each in known)}"


def _once(parser: Any) -> None:
    """Let a parser refuse an option that is given twice where only the last one would count."""
    parse = parser.parse_args

    def checked(args: list[str]) -> Any:
        options, rest, order = parse(args)
        seen = set()
        for parameter in order:
            if parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_flag:
                if parameter.name in seen:
                    raise UsageError(f"{parameter.opts[0]} is given twice; give it once")
                seen.add(parameter.name)
        return options, rest, order

    parser.parse_args = checked


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"wpriv {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def top(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """How private is this, exactly? A certified privacy calculator.

    Exit codes: 0 ok; 1 a check failed; 2 usage; 3 unsupported or out of reach; 4 the environment (something is missing, full or not
    permitted); 70 a bug; 75 interrupted, to be resumed; 130 interrupted; 141 the reader of a pipe has gone.
    """
    if ctx.invoked_subcommand is None:
        raise UsageError(f"no command given. Known: {', '.join(COMMANDS)}. Try wpriv --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; results go to standard output, everything else to standard error."""
    with streams.notes():
        try:
            with streams.results():
                return _run(sys.argv[1:] if argv is None else list(argv))
        except streams.ReaderGone as error:
            return error.exit_code
        except WprivError as error:
            return _fail(_with_flags(str(error), sys.argv[1:] if argv is None else argv), error.exit_code)
        except ClickError as error:
            return _fail(_usage(error), UsageError.exit_code)
        except (KeyboardInterrupt, typer.Abort) as error:
            inner = error.__cause__ or error.__context__
            if isinstance(inner, EOFError):  # the parser takes any for the end of the user's input
                return _bug(inner)
            return _fail("interrupted", INTERRUPTED)
        except MemoryError:
            return _fail(
                "the job needs more memory than there is. Raise --tol, or use --accountant rdp", Unsupported.exit_code
            )
        except OSError as error:
            return _environment(error)
        except SystemExit as error:  # the parser's answer to a pipe inside the program that broke
            if isinstance(error.__context__, OSError):
                return _environment(error.__context__)
            raise
        except Exception as error:  # the one place where a bug becomes an exit code
            if os.environ.get("WPRIV_DEBUG") == "1":
                raise
            return _bug(error)


def _run(words: list[str]) -> int:
    """The exit code of a command that raises nothing."""
    code = _as_typed(typer.main.get_command(app)).main(args=words, prog_name="wpriv", standalone_mode=False)
    if code == INTERRUPTED:  # typer has caught Ctrl-C by itself
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _with_flags(message: str, words: Sequence[str]) -> str:
    """The message with arguments in backticks replaced by flags of the command that was given."""
    if "`" not in message:
        return message
    from wpriv.cli.flags import as_flags

    command = typer.main.get_command(app)
    for word in words:
        inner = command.get_command(typer.Context(command), word) if hasattr(command, "get_command") else None
        if inner is None:
            break
        command = inner
    return as_flags(message, [option for parameter in command.params for option in parameter.opts])


def _bug(error: BaseException) -> int:
    """The exit code of an error that nothing in the program expects."""
    told = f"{type(error).__name__}: {error}"
    return _fail(f"a bug in wpriv ({told}). Please report it with the command line; WPRIV_DEBUG=1 shows where", BUG)


def _environment(error: OSError) -> int:
    """The exit code of an error of the operating system that no command has put into words of its own."""
    if os.environ.get("WPRIV_DEBUG") == "1":
        raise error
    names = [
        str(name) for name in (error.filename, error.filename2) if isinstance(name, (str, os.PathLike)) and str(name)
    ]
    where = " and ".join(names) or "an operation of the system"
    reason = error.strerror or str(error) or type(error).__name__
    return _fail(
        f"{where} failed: {reason}. Check that the path is right, the disk not full and access permitted",
        MissingResource.exit_code,
    )


def _usage(error: Any) -> str:
    """The parser's complaint as one line, with the option that was probably meant."""
    ctx: Any = getattr(error, "ctx", None)
    unknown = getattr(error, "option_name", None)
    if unknown is not None and ctx is not None and type(error).__name__ == "NoSuchOption":
        known = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
        own = (
            f". What has no flag of its own is given as --param {unknown.lstrip('-')}=VALUE"
            if "--param" in known
            else ""
        )
        return f"{ctx.command_path} has no option {unknown}{near(unknown.lstrip('-'), [name[2:] for name in sorted(known)], '--')}{own}"
    known = ctx.command.list_commands(ctx) if ctx is not None and hasattr(ctx.command, "list_commands") else []
    said = " ".join(str(error.format_message()).split())
    if known and said.startswith("No such command '"):
        word = said.split("'")[1]
        return f"{ctx.command_path} has no command {word!r}{near(word, known)}"
    return said


def _fail(message: str, code: int) -> int:
    print(f"wpriv: {message}", file=sys.stderr)
    return code
