"""What ``--help`` prints for each command on a wide terminal, and the words of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wpriv.cli.parsing import COMMANDS, MAX_WIDTH, LazyGroup, help_text
from wpriv.hints import SYNONYMS


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the name and the parser of every command and subcommand, such as ``recipe ls``."""
    for name in COMMANDS:
        command = LazyGroup().get_command(None, name)
        yield name, command
        for word, inner in getattr(command, "commands", {}).items():
            yield f"{name} {word}", inner


def _part(name: str, command: Any) -> Callable[[], str]:
    return lambda: f"```text\n{help_text(f'wpriv {name}', command, MAX_WIDTH)}\n```\n"


def _synonyms() -> str:
    lines = ["| here | also |", "|---|---|"]
    for kind, rows in SYNONYMS.items():
        for name, terms in rows.items():
            start = "--" if kind == "keys" else ""
            also = ", ".join(f"`{start}{term}`" for term in terms.split())
            lines.append(f"| `{start}{name}` | {also} |")
    return "\n".join(lines) + "\n"


PARTS = {"synonyms": _synonyms} | {
    f"help-{name.replace(' ', '-')}": _part(name, command) for name, command in commands()
}
