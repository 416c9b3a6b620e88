"""Sphinx settings: Markdown by MyST, the furo theme, docstrings by autodoc and napoleon.

Build with ``sphinx-build -W -b html docs docs/_build/html``; CONTRIBUTING.md has the loop.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docutils import nodes

from wpriv._version import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "wpriv"
author = "The wpriv authors"
project_copyright = "The wpriv authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "sphinx_copybutton"]
html_math_renderer = "mathml"
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "README.md"]
nitpicky = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Source"]

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def keep_bars(_app, _what, _name, _obj, _options, lines: list[str]) -> None:
    """Escape the bars of absolute values, |x|, which reStructuredText takes for substitutions."""
    lines[:] = [line if "``" in line else line.replace("|", "\\|") for line in lines]


def mark_tables(_app, doctree) -> None:
    """Give the class scroll to output in columns that is too wide to be wrapped."""
    for block in list(doctree.findall(nodes.literal_block)):
        lines = [line for line in block.astext().splitlines() if len(re.findall(r"\S {2,}\S", line)) >= 2]
        if len(lines) >= 2 and max(map(len, lines)) > 32:
            block["classes"].append("scroll")


def setup(app) -> None:
    """Connect what runs on every docstring and every page."""
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("doctree-read", mark_tables)


html_theme = "furo"
html_title = "wpriv"
html_static_path = ["_static"]
html_css_files = ["wpriv.css"]
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
