"""Writes the parts of README.md and docs/ that are computed from the code, between their two comments.

    <!-- generated: mechanisms -->
    ...
    <!-- end -->

``python docs/generate.py`` rewrites every such part, and with ``--check`` only names the pages that it would change;
tests/test_documentation.py fails where there is one. The functions that make the parts are those of
docs/generated/*.py, by the name of the part. The whole of schema/recipe.json is computed too: the schema of recipes
under an address that does not change, for editors.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from wpriv.config.schema import json_schema

DOCS = Path(__file__).resolve().parent
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
SCHEMA = DOCS.parent / "schema" / "recipe.json"
PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)


def parts() -> dict[str, Callable[[], str]]:
    """Return the functions that make the parts, by the name of the part."""
    functions: dict[str, Callable[[], str]] = {}
    for path in sorted((DOCS / "generated").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"docs_generated_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        functions |= module.PARTS
    return functions


def pages() -> dict[Path, tuple[str, str]]:
    """Return the text of each page that has generated parts, as it is and as it should be."""
    functions, generated = parts(), dict[str, str]()
    texts = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        names = [name for _, name, _, _ in PART.findall(text)]
        for name in names:
            if name not in generated:
                generated[name] = functions[name]()
        if names:
            texts[page] = (text, PART.sub(lambda part: part[1] + generated[part[2]] + part[4], text))
    texts[SCHEMA] = (SCHEMA.read_text(encoding="utf-8"), json.dumps(json_schema(), indent=2) + "\n")
    return texts


def stale() -> list[Path]:
    """Return the pages whose generated parts are not what the code makes now."""
    return [page for page, (old, new) in pages().items() if old != new]


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages, or with ``--check`` return 1 where one is out of date."""
    changed = {page: new for page, (old, new) in pages().items() if old != new}
    for page, text in changed.items():
        print(page.relative_to(DOCS.parent))
        if "--check" not in arguments:
            page.write_text(text, encoding="utf-8")
    return int(bool(changed) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
