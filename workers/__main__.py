"""`python -m workers [main|planning|sites|api]`: one process, left through `workers.process`."""

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
    """Serve one kind of queue, or the API, until a signal."""
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
    """What serves a kind, with all that it needs loaded."""
    module, function = _KINDS[kind]
    gc.disable()  # A sixth of the start is looking for garbage in what stays to the end.
    with without_grpc():
        found = getattr(importlib.import_module(module), function)
    gc.freeze()
    gc.enable()
    return found


@contextmanager
def without_grpc() -> Generator[None, None, None]:
    """Temporal's library loads grpc where it finds it, half a second for what nobody here uses.

    Google's library for Pub/Sub brought it, and loads it itself when it is needed.
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
