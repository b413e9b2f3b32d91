"""The `baseload` command. Its help imports no large module, so that it is fast."""

from __future__ import annotations

import os
import sys

from baseload.commands.command_index import COMPLETION, INTERRUPTED, OK, USAGE, help_text


def main() -> None:
    """Run the command in `sys.argv`, and exit with its exit code."""
    arguments = sys.argv[1:]
    completes = COMPLETION in os.environ  # The words are in the environment then.
    if not completes and arguments in ([], ["-h"], ["--help"], ["help"]):
        print(help_text())
        sys.exit(OK if arguments else USAGE)
    if arguments == ["--version"]:
        from importlib.metadata import version

        print(f"baseload {version('baseload')}")
        sys.exit(OK)
    try:
        from baseload.commands.app import run

        run()
    except KeyboardInterrupt:  # before the command could start
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
