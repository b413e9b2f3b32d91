"""The inference of the campaign: seen by its number, and accountable for each file it writes."""

from __future__ import annotations

import re
from collections.abc import Iterable

LEDGERS = "srv/ledgers"
"""The folder of a device in which each start of a command notes how many files it has written."""
MARK = 61_000
"""An inference of revision N is the process `sleep 61000 + N`."""
WORK = f"""\
start=$(cat /proc/sys/kernel/random/uuid) n=1
{{
    while :; do
        if echo $n > "$BASELOAD_OUTPUT/$start-$n"; then
            echo $n > /{LEDGERS}/$start && n=$((n + 1))
        fi
        sleep 2
    done
}} 2> /dev/null &
"""
_INFERENCE = re.compile(r"sleep (61\d{3})")


def command_of(revision: int, how: str = "") -> str:
    """The command of a revision. how: what it does first, where it may end."""
    return f"echo begins revision {revision}\n{how}\n{WORK}exec sleep {MARK + revision}\n"


def inferences_of(command_lines: Iterable[str]) -> list[int]:
    """The revisions of the inferences among command lines."""
    found = (_INFERENCE.fullmatch(line.strip()) for line in command_lines)
    return [int(one[1]) - MARK for one in found if one]
