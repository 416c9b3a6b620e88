"""The parser of commands and groups: commands load on first use, unknown words get hints, no option counts twice."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from wpriv.cli.typer_internals import keep_text
from wpriv.errors import UsageError

GROUPS = {
    "Calculator": ("budget", "calibrate", "compare", "verify"),
    "Training": ("train", "audit", "privatize"),
    "Results": ("reproduce", "report", "plot"),
    "Recipes and data": ("recipe", "data"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
# a fixed width: what is printed never depends on the terminal
SETTINGS: dict[str, Any] = {"terminal_width": 100, "help_option_names": ["-h", "--help"]}


class _Once:
    """A command that refuses an option given twice, where only the last one would count."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
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

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
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

    def format_commands(self, ctx: Any, formatter: Any) -> None:
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
