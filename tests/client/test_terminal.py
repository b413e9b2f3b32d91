"""On a terminal there are colours and tables; a pipe of the same command has neither."""

import os
import pty
import subprocess
import sys

from activities.db import tables
from tests.client.conftest import Desk


def _on_a_terminal(desk: Desk, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "baseload", *arguments],
            cwd=desk.folder, stdin=theirs, stdout=theirs, stderr=theirs, check=False,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"}, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_colours_and_a_pipe_does_not(desk: Desk) -> None:
    provider = desk.json("provider", "enable", "physical")
    desk.site.set(tables.Provider, provider["id"], status="ready")
    shown = _on_a_terminal(desk, "provider", "ls")
    assert "\x1b[32mready" in shown
    assert "─" in shown
    assert "\x1b" not in desk.baseload("provider", "ls").out


def test_json_on_a_terminal_is_plain_json(desk: Desk) -> None:
    assert "\x1b" not in _on_a_terminal(desk, "provider", "ls", "--json")


def test_a_name_cannot_move_the_cursor(desk: Desk) -> None:
    provider = desk.json("provider", "enable", "physical")
    desk.site.set(tables.Provider, provider["id"], status_reason="\x1b[2Jgone\rover")
    for shown in (_on_a_terminal(desk, "provider", "ls"), desk.baseload("provider", "ls").out):
        assert "\x1b[2J" not in shown
        assert "gone" in shown
