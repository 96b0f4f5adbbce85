"""Tables as HTML, for notebooks; inline, without scripts or style sheets."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

# A notebook shows so many rows of a table.
MOST_ROWS = 50


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table; integers get commas, and all texts are escaped."""
    shown = [[_cell(value) for value in row] for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        more = f"<td>... and {len(rows) - MOST_ROWS:,} more</td>"
        shown.append([more] + ["<td></td>"] * (len(header) - 1))
    names = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in shown)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"


def html_line(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{escape(text)}</p>"


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return f"<td>{escape(text)}</td>"
