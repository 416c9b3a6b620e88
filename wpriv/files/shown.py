"""Representations of results in Python: a sentence as text, a small table in a notebook, escaped text in LaTeX."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {"<=": r"$\le$", ">=": r"$\ge$", "<": "$<$", ">": "$>$", "±": r"$\pm$", "eps": r"$\varepsilon$"}
_LATEX |= {name: f"$\\{name}$" for name in ("delta", "sigma", "mu", "rho")}
_TO_ESCAPE = re.compile("|".join(rf"\b{key}\b" if key.isalpha() else re.escape(key) for key in _LATEX))
_POWER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)e([-+]?\d+)(?![\w.])")


class Shown:
    """A result in words: ``str`` is its sentence, with a line below it for each of its ``warnings``.

    ``facts`` returns its details, which notebooks show as well; LaTeX has the sentence alone.
    """

    def sentence(self) -> str:
        """Return the result as one sentence."""
        raise NotImplementedError

    def facts(self) -> list[tuple[str, str]]:
        """Return the details of the result, each a label with its text."""
        return []

    def warned(self) -> list[tuple[str, str]]:
        """Return the warnings, each with its label."""
        return [("warning", line) for line in getattr(self, "warnings", ())]

    def _with_warnings(self, sentence: str) -> str:
        return "\n".join([sentence, *(f"  {name}: {line}" for name, line in self.warned())])

    def __str__(self) -> str:
        return self._with_warnings(self.sentence())

    def __repr__(self) -> str:
        return self._with_warnings(f"<{type(self).__name__}: {self.sentence()}>")

    def _repr_html_(self) -> str:
        return html_of(self.sentence(), [*self.facts(), *self.warned()])

    def _repr_latex_(self) -> str:
        return latex(self.sentence())


def html_of(sentence: str, facts: Sequence[tuple[str, str]]) -> str:
    """A sentence and a table of facts for notebooks."""
    rows = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in facts]
    table = f'<table style="text-align: left">{"".join(rows)}</table>' if rows else ""
    return f"<p><strong>{html.escape(sentence)}</strong></p>{table}"


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for notebooks."""
    lines = [f"<tr>{''.join(f'<th>{html.escape(cell)}</th>' for cell in header)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def latex(text: str) -> str:
    """Escape text for LaTeX; numbers such as 1e-05 become powers of ten.

    >>> print(latex("a_b & 1.5e-07"))
    a\\_b \\& $1.5 \\times 10^{-7}$
    """
    parts = _POWER.split(text)  # text, then a mantissa, an exponent and text, again and again
    out = [_escaped(parts[0])]
    for mantissa, exponent, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        factor = "" if mantissa == "1" else rf"{mantissa} \times "
        out += [f"${factor}10^{{{int(exponent)}}}$", _escaped(rest)]
    return "".join(out)


def _escaped(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: _LATEX[match[0]], text)


def latex_row(cells: Sequence[str]) -> str:
    """Cells as a row of a LaTeX table."""
    return " & ".join(map(latex, cells)) + r" \\"


def latex_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for LaTeX with the rules of the package booktabs; columns behind the first one are set to the right."""
    columns = "l" + "r" * (len(header) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", latex_row(header), r"\midrule"]
    return "\n".join([*lines, *map(latex_row, rows), r"\bottomrule", r"\end{tabular}"])
