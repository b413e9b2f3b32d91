"""The command of a run in a file that only the run's account may read.

What is on a command line, everybody on the machine may see, and a command may have secrets in it.
The file goes with the variables when the run has ended.

The set-up steps of the job come first in the file, so that they run where the command runs, in a
container too. Each is evaluated in a shell of its own: none changes the command's shell, and a
mistake in one step cannot swallow the next. What they have come to stands in the run's file
`setup`: nothing yet, `begun` or `done`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
from typing import Any

from ..folders import COMMAND, SETUP, Run

ARGUMENTS = ["/bin/sh", "../" + COMMAND]
"""What runs the file, in the folder `work` of the run."""
SIMPLE = re.compile(r"([\w./+:@-]+)([ \t]+[\w./+:@%,=-]+)*\s*\Z", re.ASCII)
_OF_THE_SHELL = (
    ". : alias bg break builtin case cd command continue coproc declare do done echo elif else "
    "esac eval exec exit export false fc fg fi for function getopts hash if in jobs kill let local "
    "logout printf pwd read readonly return select set shift shopt source test then time times "
    "trap true type typeset ulimit umask unalias unset until wait while"
)
OF_THE_SHELL = frozenset(_OF_THE_SHELL.split())
"""The words that begin a command and may name no program."""


def write(run: Run, spec: dict[str, Any], variables: dict[str, str]) -> None:
    """Write the file of a run, for the account of its spec; it sets these variables first.

    Raises: OSError, when the disk is full.
    """
    text = ["%s=%s; export %s\n" % (name, shlex.quote(to), name) for name, to in variables.items()]
    if spec.get("setup"):
        _write(run, spec, SETUP, "", 0o600)
        text.append(_setup_of(spec["setup"]))
    if spec.get("starts_in_model"):
        text.append('cd "$BASELOAD_MODEL" || exit 126\n')
    _write(run, spec, COMMAND, "".join([*text, _as_shell_runs_it(spec["command"]), "\n"]), 0o400)


def is_in_setup(run: Run, spec: dict[str, Any]) -> bool:
    """Whether the set-up of the run has begun, and not ended well."""
    if not spec.get("setup"):
        return False
    try:
        descriptor = os.open(run.at(SETUP), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        return file.read(16).strip() == b"begun"


def _write(run: Run, spec: dict[str, Any], name: str, text: str, mode: int) -> None:
    path = run.at(name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", errors="surrogateescape") as file:
        if spec.get("user"):
            account = pwd.getpwnam(spec["user"])
            os.fchown(file.fileno(), account.pw_uid, account.pw_gid)
        file.write(text)


def _setup_of(steps: list[str]) -> str:
    """What runs the steps in their order until one fails, whose exit code is that of the run."""
    lines = ["echo 'baseload: set-up begins'", "echo begun > ../%s" % SETUP]
    for step in steps:
        lines.append("( eval %s )" % shlex.quote(step))
        failed = 'echo "baseload: set-up failed with exit code $1"'
        lines.append('set -- $?; [ "$1" -eq 0 ] || { %s; exit "$1"; }' % failed)
    lines += ["set --", "echo done > ../%s" % SETUP, "echo 'baseload: set-up ends'"]
    return "\n".join(lines) + "\n"


def _as_shell_runs_it(command: str) -> str:
    """A single program takes the place of the shell, as in `sh -c`: its signals and exit are those
    of the run. From a file, the shell does so only when it is told to."""
    found = SIMPLE.match(command.strip())
    is_program = found is not None and found.group(1) not in OF_THE_SHELL
    return "exec " + command.strip() if is_program else command
