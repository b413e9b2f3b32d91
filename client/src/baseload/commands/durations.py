"""Durations as people write them: `90`, `10m`, `1h30m`."""

from __future__ import annotations

import re

from baseload.commands.session import MistakeError

UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def seconds_of(text: str, option: str) -> float:
    """The seconds of `90`, `90s`, `10m`, `1h30m` or `2d`. Raises: MistakeError, for other text."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise MistakeError(f"{option} {text}: asked seconds, or a duration such as 30s, 10m, 1h30m")
    return sum(float(count) * UNITS_S[unit] for count, unit in _PART.findall(text))
