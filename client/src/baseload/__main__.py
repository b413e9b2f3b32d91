"""The `baseload` command. Help comes at once: nothing heavy is imported for it."""

from __future__ import annotations

import sys

from baseload.commands.command_index import INTERRUPTED, OK, USAGE, help_text


def main() -> None:
    """Run the command in `sys.argv`, and leave with its exit code."""
    arguments = sys.argv[1:]
    if arguments in ([], ["-h"], ["--help"], ["help"]):
        print(help_text())
        sys.exit(OK if arguments else USAGE)
    if arguments == ["--version"]:
        from importlib.metadata import version

        print(f"baseload {version('baseload')}")
        sys.exit(OK)
    try:
        from baseload.commands.app import run

        run()
    except KeyboardInterrupt:  # before a command could say what goes on
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
