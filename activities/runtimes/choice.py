"""Which of a node's runtimes runs a worker. The runtimes themselves are in the node's agent."""

from collections.abc import Collection

PROCESS, SYSTEMD, PODMAN = "process", "systemd", "podman"


class NoRuntimeError(Exception):
    """The node has none that could run the worker."""


def choose_runtime(available: Collection[str], image: str | None) -> str:
    """`podman` for an image; else systemd, which keeps limits and whole trees; else a process.

    available: as inspection found them; systemd only where the log-in user is root.
    Raises: NoRuntimeError.
    """
    if image is not None and PODMAN not in available:
        found = ", ".join(sorted(available)) or "none"
        raise NoRuntimeError(f"image {image}: needs podman on the node, found the runtimes {found}")
    if image is not None:
        return PODMAN
    return SYSTEMD if SYSTEMD in available else PROCESS
