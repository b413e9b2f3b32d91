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
    if arguments[:2] == ["help", "job"] and len(arguments) <= 3:
        sys.exit(_help_job("".join(arguments[2:])))
    if arguments[:1] == ["help"]:
        arguments = sys.argv[1:] = [*arguments[1:], "--help"]
    if arguments == ["--version"]:
        from importlib.metadata import version

        print(f"baseload {version('baseload')}")
        sys.exit(OK)
    try:
        from baseload.commands.app import run

        run()
    except KeyboardInterrupt:  # before the command could start
        sys.exit(INTERRUPTED)


def _help_job(field: str) -> int:
    """Print the reference of a job file's fields, or of one; return the exit code."""
    from baseload.job_reference import nearest_field, reference_text

    if (text := reference_text(field)) is None:
        near = nearest_field(field)
        hint = f"did you mean {near}?" if near else "see: baseload help job"
        print(f"baseload: a job file has no field {field!r}; {hint}", file=sys.stderr)
        return USAGE
    try:
        print(text, flush=True)
    except BrokenPipeError:  # its reader has exited; the interpreter's own flush would fail as well
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


if __name__ == "__main__":
    main()
