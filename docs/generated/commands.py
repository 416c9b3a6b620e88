"""What ``--help`` prints for each command, in a form that does not depend on the version of Typer."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from wpriv.cli.parsing import COMMANDS, LazyGroup

WIDTH = 100
HELP = ("-h, --help", "Show this message and exit.")


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the name and the parser of every command and subcommand, such as ``recipe ls``."""
    for name in COMMANDS:
        command = LazyGroup().get_command(None, name)
        yield name, command
        for word, inner in getattr(command, "commands", {}).items():
            yield f"{name} {word}", inner


def help_of(name: str, command: Any) -> str:
    """Return the help of one command as a block of text."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    inner = getattr(command, "commands", {})
    usage = ["[OPTIONS]", *(a.metavar if a.required else f"[{a.metavar}]" for a in arguments)]
    parts = [f"Usage: wpriv {name} {' '.join([*usage, *(['COMMAND [ARGS]...'] if inner else [])])}"]
    parts += ["\n".join(_wrapped(paragraph, "  ")) for paragraph in command.help.split("\n\n")]
    if arguments:
        parts.append(_section("Arguments", [(a.metavar, _meaning(a)) for a in arguments]))
    flags = [(" ".join(filter(None, (", ".join(o.opts), o.metavar))), _meaning(o)) for o in options]
    parts.append(_section("Options", [*flags, HELP]))
    if inner:
        parts.append(_section("Commands", [(word, c.help.partition("\n\n")[0]) for word, c in inner.items()]))
    return "```text\n" + "\n\n".join(parts) + "\n```\n"


def _meaning(parameter: Any) -> str:
    default = parameter.default
    shown = "" if default is None or default is False or parameter.multiple else f"  [default: {default}]"
    return f"{parameter.help}{shown}"


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    width = max(len(word) for word, _ in rows) + 4
    lines = [line for word, text in rows for line in _wrapped(text, f"  {word}".ljust(width), " " * width)]
    return "\n".join([f"{title}:", *lines])


def _wrapped(text: str, first: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent=first, subsequent_indent=later or first)


def _part(name: str, command: Any) -> Callable[[], str]:
    return lambda: help_of(name, command)


PARTS = {f"help-{name.replace(' ', '-')}": _part(name, command) for name, command in commands()}
