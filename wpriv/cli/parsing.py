"""The parser of the command line, and the uses of Typer that it needs.

The uses of Typer that its documentation does not cover.

Typer keeps a copy of click since 0.26 and depends on click before; this file is what hides the difference from the
other commands. Tried with Typer 0.19.0, 0.21.1, 0.23.1, 0.25.0, 0.26.0, 0.26.8, 0.27.0 and 0.29.2.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from wpriv.errors import UsageError

# Typer exports the errors of its parser, but not their base class
ParserError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


def option(metavar: str, help: str, *names: str, **more: Any) -> object:
    """An option with a value, called as its parameter unless it has other ``names``."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def switch(name: str, help: str) -> object:
    """An option without a value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str) -> object:
    """An argument of a command."""
    return typer.Argument(metavar=metavar, help=help)


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

    Args:
        name: the parameter of the command that receives the record.
        record: a dataclass. option: the flag of a field.
    """
    types = get_type_hints(record)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    annotated: Any = Annotated  # with a type that is computed here
    fields = {}
    for field in dataclasses.fields(record):
        flag = annotated[types[field.name], option(field.name)]
        fields[field.name] = inspect.Parameter(field.name, kind, default=field.default, annotation=flag)

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
    "Calculator": ("budget", "calibrate", "compare", "verify", "explain"),
    "Training": ("train", "audit", "privatize"),
    "Results": ("reproduce", "report", "plot"),
    "Recipes and data": ("recipe", "data"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
# a fixed width: what is printed never depends on the terminal
SETTINGS: dict[str, object] = {"terminal_width": 100, "help_option_names": ["-h", "--help"]}


class _Once:
    """A command that refuses an option given twice, where only the last one would count."""

    def parse_args(self: Any, ctx: object, args: list[str]) -> list[str]:
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
            known = unknown_word(args[0], self.list_commands(ctx))
            raise UsageError(f"{ctx.command_path} has no command {args[0]!r}{known}")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """The commands are the modules named in ``COMMANDS``, each imported when it is used.

    Such a module has a function ``command``, or a Typer ``app`` with commands of its own.
    """

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

    def format_commands(self, ctx: object, formatter: Any) -> None:
        """Write the commands under the headings of ``GROUPS``, one column for all of them."""
        width = max(map(len, COMMANDS))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                limit = formatter.width - 6 - width
                texts = [self.get_command(ctx, name).get_short_help_str(limit) for name in names]
                formatter.write_dl([(name.ljust(width), text) for name, text in zip(names, texts, strict=True)])


def unknown_word(word: str, known: Sequence[str], prefix: str = "") -> str:
    """Return '; did you mean ...? Known: ...' for an unknown command or option.

    Args:
        prefix: what options begin with.
    """
    from wpriv.hints import did_you_mean

    names = ", ".join(prefix + name for name in known) or "none"
    return f"{did_you_mean(word, known, prefix) or '.'} Known: {names}"
