"""The parser of the command line, and the uses of Typer that its documentation does not cover.

Typer keeps a copy of click since 0.26 and depends on click before; this file is what hides the difference from the
other commands. Tried with Typer 0.19.0, 0.21.1, 0.23.1, 0.25.0, 0.26.0, 0.26.8, 0.27.0 and 0.29.2.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TextIO, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from wpriv.errors import UsageError
from wpriv.hints import instead, plain, plain_key

# Typer exports the errors of its parser, but not their base class
ParserError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


# headings of options in help, the last ones of every command in this order
RESULTS, MACHINE, OUTPUT = "Results folder", "Machine and data", "Output"


def option(metavar: str, help: str, *names: str, group: str | None = None, default: Any = None, **more: Any) -> Any:
    """An option with a value, as the default of a parameter, called as that unless it has other ``names``."""
    return typer.Option(default, *names, metavar=metavar, help=help, rich_help_panel=group, **more)


def switch(name: str, help: str, group: str | None = None, default: bool | None = False) -> Any:
    """An option without a value; see ``option``."""
    return typer.Option(default, name, help=help, rich_help_panel=group)


def argument(metavar: str, help: str, default: Any = ...) -> Any:
    """An argument of a command, required unless it has a default."""
    return typer.Argument(default, metavar=metavar, help=help)


class _TextAsTyped:
    """A reader of a flag's value that returns it unchanged."""

    def coerce(self, value: object, **_: object) -> object:
        return value


def keep_text(command: Any, settings: dict[str, Any]) -> None:
    """Make a command take the text of its flags as typed.

    Typer 0.26 and later pass every value, also text, through a pydantic adapter. Loading pydantic takes a third of the
    start time.
    """
    for parameter in [*command.params, command.get_help_option(typer.Context(command, **settings))]:
        if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, list[str], bool):
            parameter._runtime_param = _TextAsTyped()


def expand_record(
    name: str, record: type, option: Callable[[str], object]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command one flag for each field of a dataclass, in place of one parameter.

    Typer reads flags from ``inspect.signature``, which honours ``__signature__`` (PEP 362), and from
    ``__annotations__``.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    fields = {
        name: inspect.Parameter(name, kind, default=option(name), annotation=annotation)
        for name, annotation in get_type_hints(record).items()
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            parameters += fields.values() if parameter.name == name else [parameter]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = record(**{field: values.pop(field) for field in fields})
            command(**{name: given}, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


# The parser of commands and groups: commands load on first use, unknown words get hints, no option counts twice.

GROUPS = {
    "Calculator": ("budget", "calibrate", "compare", "verify", "check", "explain"),
    "Training": ("train", "audit", "privatize"),
    "Releases of tables": ("release",),
    "Budget of an organisation": ("ledger",),
    "Results": ("reproduce", "report", "plot"),
    "What there is": ("list", "recipe", "data", "completion"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
SETTINGS: dict[str, object] = {"help_option_names": ["-h", "--help"]}
MAX_WIDTH = 100  # of help, on a wider terminal


def _plain_options(args: Sequence[str], options: Collection[str]) -> list[str]:
    """The arguments with options of other programs, such as --epsilon and --batch_size=256, by their names here."""
    words = list(args)
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word == "--":
            break
        if name.startswith("--") and name not in options:
            option = f"--{plain_key(name[2:]).replace('_', '-')}"
            words[index] = option + equals + value if option in options else word
    return words


class _Once:
    """A command that knows options by other names too, refuses one given twice, and writes its own help."""

    def get_help(self: Any, ctx: Any) -> str:
        return help_text(ctx.command_path, self, min(width(), MAX_WIDTH), ctx.meta.get(WORDS, ()))

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        args[:] = _plain_options(args, {name for parameter in self.params for name in parameter.opts})
        ctx.meta[WORDS] = list(args)
        seen = set()
        for parameter in self.make_parser(ctx).parse_args(list(args))[2]:
            if parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_flag:
                if parameter.name in seen:
                    raise UsageError(f"{parameter.opts[0]} is given twice; give it once")
                seen.add(parameter.name)
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # of TyperCommand or TyperGroup
        return rest


class Command(_Once, TyperCommand):
    """A command that refuses an option given twice."""


class Group(_Once, TyperGroup):
    """A group of commands that names the nearest command for an unknown one, and refuses an option given twice."""

    def get_command(self, ctx: Any, name: str) -> Any:
        command = super().get_command(ctx, name)
        if command is not None:
            keep_text(command, SETTINGS)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            known = instead(args[0], self.list_commands(ctx), help=f"{ctx.command_path} --help")
            if ctx.parent is None:
                from wpriv.cli import catalog

                if catalog.kind_of(args[0]) or catalog.places(args[0]):
                    known = f": `wpriv help {args[0]}` says what it is. `wpriv --help` names all"
            raise UsageError(f"{ctx.command_path} has no command {args[0]!r}{known}")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group of modules named in ``COMMANDS``, each with a ``command`` or a Typer ``app``, imported when used."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, name: str) -> Any:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"wpriv.cli.{name}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(name, cls=Command, context_settings=SETTINGS)(module.command)
        command = typer.main.get_command(app)
        keep_text(command, SETTINGS)
        return command


# Help: a command's first sentence, examples, the rest of its docstring, and its options under their headings.

WORDS = "wpriv.words"  # the words of the command line after the command, kept for its help
_HELP = ("-h, --help", "Show this message and exit.")


def width(stream: TextIO | None = None) -> int:
    """Return the columns of a stream, by default standard output: ``COLUMNS``, those of its terminal, or 80."""
    given = os.environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() and len(given) < 6 else 0
    if not columns:
        with contextlib.suppress(OSError, ValueError):  # no terminal, or no file at all
            columns = os.get_terminal_size((stream or sys.stdout).fileno()).columns
    return max(columns or 80, 40)


def help_text(path: str, command: Any, width: int, words: Sequence[str] = ()) -> str:
    """Return the help of a command.

    Args:
        path: the command as it is typed, such as ``wpriv recipe ls``.
        command: the parser of the command. width: columns to fill; no word and no option is broken.
        words: what follows on the command line; with a mechanism in it, its parameters are shown first.
    """
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    inner = getattr(command, "commands", {})
    usage = ["[OPTIONS]", *(a.metavar if a.required else f"[{a.metavar}]" for a in arguments)]
    usage += ["COMMAND [ARGS]..."] * (bool(inner) or isinstance(command, LazyGroup))
    summary, *paragraphs = command.help.split("\n\n")
    examples = [text for text in paragraphs if text.startswith("wpriv ")]
    parts = [fill(f"Usage: {path} {' '.join(usage)}", width, " " * 9, ""), fill(summary, width)]
    if examples:
        parts.append("\n".join(["Examples:", *(_example(text, width) for text in examples)]))
    parts += [fill(text, width) for text in paragraphs if text not in examples]
    if (name := _mechanism_of(words)) is not None:
        from wpriv.cli import catalog

        known = catalog.parameters("mechanisms", name)
        rows = [(f"{each.typed('mechanisms')} ({each.value})", each.sentence) for each in known]
        parts.append(section(f"Parameters of {name}", rows, width))
    if arguments:
        parts.append(section("Arguments", [(a.metavar, _meaning(a)) for a in arguments], width))
    parts += [section(heading, rows, width) for heading, rows in _option_groups(options)]
    if isinstance(command, LazyGroup):
        commands = {name: command.get_command(None, name) for name in COMMANDS}
        parts += [_commands(heading, {name: commands[name] for name in GROUPS[heading]}, width) for heading in GROUPS]
    elif inner:
        parts.append(_commands("Commands", inner, width))
    return "\n\n".join(parts)


def _option_groups(options: Iterable[Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The headings of options, those that every command may have last, each with its options."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for each in options:
        heading = each.rich_help_panel or "Options"
        row = (" ".join(filter(None, (", ".join(each.opts), each.metavar))), _meaning(each))
        groups.setdefault(heading, []).append(row)
    last = [heading for heading in (RESULTS, MACHINE, OUTPUT) if heading in groups]
    ordered = [*(heading for heading in groups if heading not in last), *last] or ["Options"]
    groups.setdefault(ordered[-1], []).append(_HELP)
    return [(heading, groups[heading]) for heading in ordered]


def _mechanism_of(words: Sequence[str]) -> str | None:
    """The mechanism that the words of a command line name, if there is one of that name."""
    from wpriv.core import registry

    given = [after for word, after in itertools.pairwise(words) if word == "--mech"]
    given += [word.removeprefix("--mech=") for word in words if word.startswith("--mech=")]
    known = (plain("mechanisms", name) for name in given)
    return next((name for name in known if registry.known("mechanisms", name)), None)


def _commands(heading: str, commands: dict[str, Any], width: int) -> str:
    rows = [(name, re.split(r"(?<=[.])\s|\n\n", command.help, maxsplit=1)[0]) for name, command in commands.items()]
    return section(heading, rows, width, max(map(len, COMMANDS)) + 4)


def _meaning(parameter: Any) -> str:
    default = parameter.default
    shown = "" if default is None or default is False or parameter.multiple else f" [default: {default}]"
    return f"{parameter.help}{shown}"


def section(title: str, rows: Sequence[tuple[str, str]], width: int, column: int = 0) -> str:
    """A heading and rows of two columns; on a narrow terminal each text stands below its word."""
    column = column or max(len(word) for word, _ in rows) + 4
    lines = [f"{title}:"]
    for word, text in rows:
        if column > width // 2:
            lines += [f"  {word}", fill(text, width, " " * 6)]
        else:
            lines.append(fill(text, width, " " * column, f"  {word}".ljust(column)))
    return "\n".join(lines)


def fill(text: str, width: int, indent: str = "  ", first: str | None = None) -> str:
    """Wrap a text between words; words that are longer than a line, and options, stay whole."""
    start = indent if first is None else first
    words = " ".join(text.split())
    return textwrap.fill(
        words, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _example(text: str, width: int) -> str:
    """A command, continued on further lines by backslashes so that it can be copied; options keep their values."""
    pieces = re.findall(r"--?\w[\w-]*(?: (?:\"[^\"]*\"|(?!-)\S+))?|\"[^\"]*\"|\S+", " ".join(text.split()))
    lines = ["  " + pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + 3 > width:
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += f" {piece}"
    return "\n".join(lines)
