"""Fill in the templates of pages and statements, which are in ``templates/``.

Templates ``*.html.j2`` escape every value; ``*.md.j2`` and ``*.txt.j2`` write values as they are.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from wpriv.results.expectations import number
from wpriv.training.reports import words

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["words"] = words
    environment.filters |= {"up": words.up, "down": words.down, "number": number, "cell": _cell}
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return environment


def _cell(value: object) -> str:
    """Text of a cell of a Markdown table, without what would end it."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def filled(name: str, /, **values: object) -> str:
    """Return a template with its values."""
    return str(_environment().get_template(name).render(values))


def lines(name: str, /, **values: object) -> list[str]:
    """Return the lines of a template with its values, without empty ones."""
    return [line.strip() for line in filled(name, **values).splitlines() if line.strip()]


def sections(name: str, /, **values: object) -> dict[str, list[str]]:
    """Return the lines of a template by the name in the line ``= name`` above them."""
    found: dict[str, list[str]] = {}
    for line in lines(name, **values):
        if line.startswith("= "):
            current = found.setdefault(line[2:], [])
        else:
            current.append(line)
    return found


def part(name: str, *values: object) -> str:
    """Return a macro of ``parts.html.j2`` with its values, as HTML that is not escaped again."""
    html: str = getattr(_environment().get_template("parts.html.j2").module, name)(*values)
    return html
