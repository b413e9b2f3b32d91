"""Reasons in tables: the first line of each, on a terminal as much of it as is left of a row."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from baseload.commands.terminal import Screen

NARROWEST = 20


def with_short_reasons(
    screen: Screen, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """The rows with the reason in their last cell short enough for one line."""
    shown = [[*row[:-1], _first_line(row[-1])] for row in rows]
    if not screen.is_rich or not shown:
        return shown
    texts = [[str(cell or "-") for cell in row] for row in shown]
    widths = [max(len(text) for text in column) for column in zip(columns, *texts, strict=True)]
    left = shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * len(widths)
    return [[*row[:-1], _cut(row[-1], max(left, NARROWEST))] for row in shown]


def _first_line(text: str | None) -> str | None:
    """The first line that says something; `…` says that there are more."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return f"{lines[0]}…" if len(lines) > 1 else (lines[0] if lines else text)


def _cut(text: str | None, width: int) -> str | None:
    return f"{text[: width - 1]}…" if text and len(text) > width else text
