"""What is said to a node's login shell, and how the answer is found in what comes back.

A login shell may print anything before our command runs, so each command first prints a line
that nobody else can know, and everything before that line is dropped.
"""

import secrets
import shlex

from activities.transport.endpoint import NodeEndpoint

RECENT_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"


def new_mark() -> str:
    """A line that only this one command will print."""
    return f"baseload-{secrets.token_hex(12)}"


def survey(endpoint: NodeEndpoint, mark: str, agent_name: str) -> str:
    """Make the agent's folder; answers with three lines: the root, the Python that runs the agent,
    and the size of the agent.
    """
    pythons = " ".join(shlex.quote(python) for python in endpoint.pythons)
    return _in_sh(
        f"R={shlex.quote(endpoint.root)}\n"
        'if [ -z "$R" ]; then\n'
        '  if [ "$(id -u)" = 0 ]; then R=/var/lib/baseload; else R=$HOME/.baseload-node; fi\n'
        "fi\n"
        'case "$R" in /*) ;; *) R=$HOME/$R ;; esac\n'
        'umask 022; mkdir -p "$R/agent" && chmod 711 "$R" "$R/agent" || exit 1\n'
        f"for P in {pythons}; do\n"
        f'  "$P" -I -S -c "{RECENT_ENOUGH}" 2>/dev/null && break\n'
        "done\n"
        f'printf "\\n{mark}\\n%s\\n%s\\n" "$R" "$P"\n'
        f'wc -c 2>/dev/null < "$R/agent/{agent_name}" || echo 0\n'
    )


def verb(python: str, archive: str, name: str, mark: str) -> str:
    """Run one verb of the agent; isolated and without site packages it starts twice as fast."""
    program = f"{shlex.quote(python)} -I -S {shlex.quote(archive)} {shlex.quote(name)}"
    return _in_sh(f'printf "\\n{mark}\\n"; exec {program}')


def after_mark(output: bytes, mark: str) -> bytes | None:
    """What follows the mark's line; None as long as it has not come."""
    _, found, rest = output.partition(f"\n{mark}\n".encode())
    return rest if found else None


def _in_sh(script: str) -> str:
    """Whatever the login shell is, a POSIX shell does it."""
    return f"exec /bin/sh -c {shlex.quote(script)}"
