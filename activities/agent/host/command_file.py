"""The command of a run in a file that only the run's account may read.

What is on a command line, everybody on the machine may see, and a command may have secrets in it.
The file goes with the variables when the run has ended.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
from typing import Any

from ..folders import COMMAND, Run

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
    path = run.at(COMMAND)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "w", errors="surrogateescape") as file:
        if spec.get("user"):
            account = pwd.getpwnam(spec["user"])
            os.fchown(file.fileno(), account.pw_uid, account.pw_gid)
        for name, value in variables.items():
            file.write("%s=%s; export %s\n" % (name, shlex.quote(value), name))
        file.write(_as_shell_runs_it(spec["command"]) + "\n")


def _as_shell_runs_it(command: str) -> str:
    """A single program takes the place of the shell, as in `sh -c`: its signals and exit are those
    of the run. From a file, the shell does so only when it is told to."""
    found = SIMPLE.match(command.strip())
    is_program = found is not None and found.group(1) not in OF_THE_SHELL
    return "exec " + command.strip() if is_program else command
