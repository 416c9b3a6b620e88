"""wpriv list"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wpriv.cli import catalog, flags, output
from wpriv.cli.parsing import COMMANDS, MAX_WIDTH, argument, fill, section, width
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

if TYPE_CHECKING:
    from wpriv.cli.catalog import Entry

SCHEMA = "wpriv.list/1"


def command(
    kind: flags.Text = argument(
        "KIND", "A kind of names (wpriv list shows them), or a name of any kind.", default=None
    ),
    name: flags.Text = argument("NAME", "One name of the kind: its parameters, source and meaning.", default=None),
    as_json: bool = flags.JSON,
) -> None:
    """List what can be named: mechanisms, accountants, samplings, models, data sets, recipes, ...; or describe one.

    Plug-ins of other installed packages are among them.

    wpriv list

    wpriv list mechanisms

    wpriv list gauss

    wpriv list accountants wdp --json
    """
    if kind is None:
        kinds = [(each, len(catalog.names(each)), about) for each, about in catalog.KINDS.items()]
        _print_rows({"kind": "kind", "count": "count", "about": "what it names"}, kinds, as_json)
        return
    places = _places(kind, name)
    if not places:
        wanted = _kind(kind)
        names = [(each, flags.as_flags(about)) for each, about in catalog.about(wanted).items()]
        _print_rows({"name": "name", "about": "what it is"}, names, as_json)
        return
    output.doing("trying accountants")
    entries = [catalog.entry(*place) for place in places]
    if as_json:
        output.emit_rows([dataclasses.asdict(entry) for entry in entries], SCHEMA)
    else:
        output.emit("\n\n".join(map(_text, entries)))


def _kind(word: str) -> str:
    found = catalog.kind_of(word)
    if found is None:
        if word in COMMANDS:
            raise UsageError(f"{word} is a command: `wpriv help {word}` explains it")
        known = [*COMMANDS, *catalog.KINDS, *(name for kind in catalog.KINDS for name in catalog.names(kind))]
        raise UsageError(
            f"nothing is called {word[:60]!r}{did_you_mean(word, known) or '.'} `wpriv list` shows the kinds of names"
        )
    return found


def _places(kind: str, name: str | None) -> list[tuple[str, str]]:
    """The kinds and names that the arguments ask to describe; none where they ask for the names of a kind."""
    if name is None:
        return [] if catalog.kind_of(kind) else catalog.places(kind)
    wanted = _kind(kind)
    places = [place for place in catalog.places(name) if place[0] == wanted]
    if not places:
        near = did_you_mean(name, catalog.names(wanted))
        raise UsageError(f"none of the {wanted} is called {name[:60]!r}{near or '.'} `wpriv list {wanted}` shows them")
    return places


def _print_rows(header: dict[str, str], rows: Sequence[tuple[object, ...]], as_json: bool) -> None:
    """Print rows; ``header`` has the key of each column with its heading."""
    if as_json:
        output.emit_rows([dict(zip(header, row, strict=True)) for row in rows], SCHEMA)
    else:
        output.emit_table([*header.values()], [[*map(str, row)] for row in rows])


def _text(entry: Entry) -> str:
    """One name in paragraphs: what it is, its parameters, and what else is known."""
    columns = min(width(), MAX_WIDTH)
    parts = [fill(f"{entry.name} ({catalog.singular(entry.kind)}): {flags.as_flags(entry.about)}", columns, "")]
    if entry.parameters:
        rows = [(f"{each.typed(entry.kind)} ({each.value})", each.sentence) for each in entry.parameters]
        parts.append(section("Parameters", rows, columns))
    facts = [(key, text) for key, text in entry.facts.items() if text]
    if facts:
        parts.append(section("Facts", facts, columns))
    return "\n\n".join(parts)
