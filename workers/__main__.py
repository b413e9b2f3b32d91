"""`python -m workers [main|planning|sites|api]`: one process, left through `workers.process`."""

import argparse
import importlib
from typing import NoReturn

from workers.process import run_process

_KINDS = {
    "main": ("workers.service", "serve_main"),
    "planning": ("workers.planning", "serve_planning"),
    "sites": ("workers.service", "serve_sites"),
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
    module, function = _KINDS[parser.parse_args().kind]
    run_process(getattr(importlib.import_module(module), function))


if __name__ == "__main__":
    main()
