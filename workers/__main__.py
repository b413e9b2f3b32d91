"""`python -m workers [main|planning|sites|api]`: one process, which ends by `workers.process`."""

import argparse
import gc
import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn

from workers.process import run_process

_KINDS = {
    "main": ("workers.main", "serve_main"),
    "planning": ("workers.planning", "serve_planning"),
    "sites": ("workers.sites", "serve_sites"),
    "api": ("workers.api", "serve_api"),
}


def main() -> NoReturn:
    """Serve one kind of task queue, or the API, until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m workers", description=__doc__)
    parser.add_argument(
        "kind",
        nargs="?",
        choices=_KINDS,
        default="main",
        help="main: workflows, rows and sites; planning: placement's rules; "
        "sites: the regions of BASELOAD_SITES alone, with no database; api: the HTTP API",
    )
    run_process(server_of(parser.parse_args().kind))


def server_of(kind: str) -> Any:
    """The function that serves this kind of process, with everything that it imports loaded."""
    module, function = _KINDS[kind]
    gc.disable()  # Collecting garbage among the imports takes a sixth of the start.
    with without_grpc():
        found = getattr(importlib.import_module(module), function)
    gc.freeze()
    gc.enable()
    return found


@contextmanager
def without_grpc() -> Generator[None, None, None]:
    """Hide grpc from Temporal's library, which imports it if installed but does not need it here.

    The import takes half a second. Google's library for Pub/Sub installs grpc, and imports it
    later when it is needed.
    """
    if "grpc" in sys.modules:
        yield
        return
    sys.modules["grpc"] = None  # type: ignore[assignment]  # so that importing it fails
    try:
        yield
    finally:
        del sys.modules["grpc"]


if __name__ == "__main__":
    main()
