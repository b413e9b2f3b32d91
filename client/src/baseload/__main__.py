"""The `baseload` command. Help comes at once: nothing heavy is imported for it."""

from __future__ import annotations

import sys

from baseload.commands.index import OK, USAGE, help_text


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
    from baseload.commands.app import run

    run()


if __name__ == "__main__":
    main()
