"""Mathematics as MathML, which browsers typeset themselves: no script, no network.

The font that ``_static/wpriv.css`` names has the tables that MathML needs; few systems have one of their own.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.util import logging

CONVERTER = LatexToMathML(annotation=True, fancy_error=False)
# a browser stretches a bracket only outside a script: its index goes to an empty base behind it
SCRIPT_OF_BRACKET = re.compile(r"(\\[bB]igg?r?(?:[)\]|]|\\}))(?=[_^])")
GLUED = re.compile(r"[(\[]?<math>(?:(?!</math>).)*</math>(?:[,.;:!?)\]]+|-\w+)", re.S)
TAG = re.compile(r"\s*\\tag\{([^}]*)\}")


def mathml(node: nodes.Element, display: bool) -> str:
    """Return a formula as a MathML element, which keeps its LaTeX as an annotation; warn where it is no LaTeX."""
    latex = TAG.sub("", node.astext()).replace("\n", " ").strip()
    latex = SCRIPT_OF_BRACKET.sub(r"\1{}", latex)
    try:
        return CONVERTER.convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        logging.getLogger(__name__).warning("%s: %s", latex, error, location=node)
        return f"<code>{escape(latex)}</code>"


def visit_inline(self, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    self.body.append(mathml(node, display=False))
    raise nodes.SkipNode


def visit_block(self, node: nodes.math_block) -> None:
    r"""Write a formula on a line of its own, with the number that \tag gives it."""
    tag = TAG.search(node.astext())
    number = f'<span class="eqno">({escape(tag[1])})</span>' if tag else ""
    self.body.append(f'<div class="math">{mathml(node, display=True)}{number}</div>\n')
    raise nodes.SkipNode


def keep_together(_app, _name, _template, context, _doctree) -> None:
    """Keep a formula in a line of text and the punctuation behind it on one line."""
    if "body" in context:
        context["body"] = GLUED.sub(r'<span class="together">\g<0></span>', context["body"])


def setup(app) -> dict[str, bool]:
    """Register the renderer under the name mathml."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    app.connect("html-page-context", keep_together)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
