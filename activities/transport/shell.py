"""The commands for a node's login shell, and how their output is found in what the shell prints.

A login shell may print anything before our command runs. Each command therefore first prints a
random line, the marker, and everything before the marker is dropped.
"""

import secrets
import shlex

from activities.transport.agent_archive import AgentArchive
from activities.transport.endpoint import NodeEndpoint

RECENT_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"
HASH_OF_INPUT = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"


def new_marker() -> str:
    """A random marker line that only one command prints."""
    return f"baseload-{secrets.token_hex(12)}"


def survey(endpoint: NodeEndpoint, marker: str, agent: AgentArchive) -> str:
    """The command that makes the agent's folder and prints three lines: the agent's root, the
    Python that runs the agent, and the SHA-256 of the installed agent, which is empty if there is
    none. A machine may name its root in `BASELOAD_NODE_ROOT`. What was compiled from another
    archive of this name is removed, because the agent would start from it.
    """
    pythons = " ".join(shlex.quote(python) for python in endpoint.pythons)
    return _in_sh(
        f'R={shlex.quote(endpoint.root)}; [ -n "$R" ] || R=${{BASELOAD_NODE_ROOT:-}}\n'
        'if [ -z "$R" ]; then\n'
        '  if [ "$(id -u)" = 0 ]; then R=/var/lib/baseload; else R=$HOME/.baseload-node; fi\n'
        "fi\n"
        'case "$R" in /*) ;; *) R=$HOME/$R ;; esac\n'
        'umask 022; mkdir -p "$R/agent" && chmod 711 "$R" "$R/agent" || exit 1\n'
        f"for P in {pythons}; do\n"
        f'  "$P" -I -S -c "{RECENT_ENOUGH}" 2>/dev/null && break\n'
        "done\n"
        f'printf "\\n{marker}\\n%s\\n%s\\n" "$R" "$P"\n'
        f'A="$R/agent/{agent.name}"\n'
        'H=$(sha256sum 2>/dev/null < "$A") ||\n'
        f'  H=$("$P" -I -S -c "{HASH_OF_INPUT}" 2>/dev/null < "$A")\n'
        "H=${H%% *}\n"
        f'[ -z "$H" ] || [ "$H" = {agent.sha256} ] || rm -rf "$A".*/\n'
        'echo "$H"\n'
    )


def verb(python: str, archive: str, name: str, marker: str) -> str:
    """The command that runs one verb of the agent.

    Python runs isolated and without site packages, because it then starts twice as fast.
    """
    program = f"{shlex.quote(python)} -I -S {shlex.quote(archive)} {shlex.quote(name)}"
    return _in_sh(f'printf "\\n{marker}\\n"; exec {program}')


def after_marker(output: bytes, marker: str) -> bytes | None:
    """The output after the marker line; None while the marker has not arrived."""
    _, found, rest = output.partition(f"\n{marker}\n".encode())
    return rest if found else None


def _in_sh(script: str) -> str:
    """The script run by a POSIX shell, whichever the login shell is."""
    return f"exec /bin/sh -c {shlex.quote(script)}"
