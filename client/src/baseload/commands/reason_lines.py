"""Lists on a narrow terminal: reasons are cut, and columns that are less needed are left out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from baseload.commands.terminal import Screen, frame_width, shown_text

NARROWEST = 20


def print_list(
    screen: Screen, columns: Sequence[str], rows: Sequence[Sequence[Any]], spare: Sequence[str]
) -> None:
    """Print a list whose last column is a reason. spare: as of `without_spare_columns`."""
    shown, kept = without_spare_columns(screen, columns, rows, spare)
    is_reasoned = shown[-1] == columns[-1]
    screen.table(shown, with_short_reasons(screen, shown, kept) if is_reasoned else kept)


def with_short_reasons(
    screen: Screen, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """The rows with the reason in their last cell short enough for one line."""
    shown = [[*row[:-1], _first_line(row[-1])] for row in rows]
    if not screen.is_rich or not shown:
        return shown
    texts = [[shown_text(cell) for cell in row] for row in shown]
    widths = [max(len(text) for text in column) for column in zip(columns, *texts, strict=True)]
    left = shutil.get_terminal_size().columns - sum(widths[:-1]) - frame_width(len(widths))
    return [[*row[:-1], _cut(row[-1], max(left, NARROWEST))] for row in shown]


def without_spare_columns(
    screen: Screen, columns: Sequence[str], rows: Sequence[Sequence[Any]], spare: Sequence[str]
) -> tuple[list[str], list[list[Any]]]:
    """The columns and rows without as many of the spare columns as the terminal has no room for.

    spare: the columns that may be left out, what is needed least first. The last column of all is a
    reason, which takes 20 characters or fewer.
    """
    left_out: set[str] = set()
    if screen.is_rich:
        widths = {
            name: max(len(text) for text in (name, *map(shown_text, cells)))
            for name, *cells in zip(columns, *rows, strict=True)
        }
        widths[columns[-1]] = min(widths[columns[-1]], NARROWEST)
        room = shutil.get_terminal_size().columns
        for name in (each for each in spare if each in columns):
            if sum(widths.values()) + frame_width(len(widths)) <= room:
                break
            left_out.add(name)
            del widths[name]
    kept = [index for index, name in enumerate(columns) if name not in left_out]
    return [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _first_line(text: str | None) -> str | None:
    """The first line that says something; `…` says that there are more."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return f"{lines[0]}…" if len(lines) > 1 else (lines[0] if lines else text)


def _cut(text: str | None, width: int) -> str | None:
    return f"{text[: width - 1]}…" if text and len(text) > width else text
