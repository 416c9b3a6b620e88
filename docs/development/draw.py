"""Draws the two diagrams of architecture.md: ``python docs/development/draw.py`` writes pipeline.svg and rooms.svg."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
FONT = 'font-family="Helvetica, Arial, sans-serif"'
PIPELINE = (
    ("Mechanism", "what is released", "a loss pair"),
    ("Process", "what ran, how often,", "sampled how"),
    ("Accountant", "exact, certified,", "bound, or refusal"),
    ("Curve", "what holds at", "every eps and delta"),
    ("Guarantee", "one point, with", "its provenance"),
)
FLOORS = (
    ("cli", "parse flags, call a verb, show the result"),
    ("papers", "tables, tasks, figures and accountants of five papers; reproduction"),
    ("training", "runs: plan, folder, grid, statement; local reports, audits"),
    ("training/tasks · engine · clipping · noise", "private training, step by step; data sets, networks"),
    ("accounting · claims · comparison", "the verbs: budget, calibrate, verify, compare"),
    ("accounting/accountants · mechanisms · pld", "plug-ins; certified composition"),
    ("config · figures · results", "recipes; drawing; results folders"),
    ("core · randomness", "loss pairs, processes, curves, guarantees; the cryptographic stream"),
    ("numerics · files · transport", "functions of numbers; safe reading and writing; optimal transport"),
)


def text(x: float, y: float, words: str, size: int, *, bold: bool = False, anchor: str = "middle") -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text {place} {FONT} font-size="{size}" fill="#1b2a38"{weight}>{escape(words)}</text>'


def svg(width: int, height: int, parts: list[str]) -> str:
    frame = f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>'
    body = "\n".join([frame, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n{body}\n</svg>\n'


def pipeline() -> str:
    parts, width, step = [], 148, 178
    for index, (name, *lines) in enumerate(PIPELINE):
        x = 14 + index * step
        parts.append(f'<rect x="{x}" y="14" width="{width}" height="82" rx="6" fill="#e8f1f8" stroke="#2b6ca3"/>')
        parts.append(text(x + width / 2, 38, name, 15, bold=True))
        parts += [text(x + width / 2, 60 + 18 * row, line, 12) for row, line in enumerate(lines)]
        if index:
            start = x - (step - width) + 4
            parts.append(f'<path d="M{start} 55 H{x - 9}" stroke="#2b6ca3" stroke-width="2"/>')
            parts.append(f'<path d="M{x - 10} 49 L{x - 2} 55 L{x - 10} 61 Z" fill="#2b6ca3"/>')
    return svg(14 + 4 * step + width + 14, 110, parts)


def rooms() -> str:
    parts, height = [], 44
    for index, (names, what) in enumerate(FLOORS):
        y = 12 + index * (height + 6)
        parts.append(f'<rect x="14" y="{y}" width="792" height="{height}" rx="6" fill="#e8f1f8" stroke="#2b6ca3"/>')
        parts.append(text(28, y + 27, names, 14, bold=True, anchor="start"))
        parts.append(text(792, y + 27, what, 12, anchor="end"))
    bottom = 12 + len(FLOORS) * (height + 6)
    parts.append(text(410, bottom + 16, "A file imports from its own folder and from the floors below it.", 12))
    return svg(820, bottom + 28, parts)


if __name__ == "__main__":
    (HERE / "pipeline.svg").write_text(pipeline(), encoding="utf-8")
    (HERE / "rooms.svg").write_text(rooms(), encoding="utf-8")
