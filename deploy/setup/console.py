"""The functions of all set-up scripts: print a line, run a command, lock, check the disk."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baseload"
LOG = CHECKOUT / ".baseload" / "logs" / "setup.log"
_SUMS = ("do not match the hashes", "hash mismatch", "checksum mismatch",
         "checksum validation failed", "missing go.sum entry")  # fmt: skip
_ABOUT_SUMS = ("verifying", "downloaded:", "go.sum", "expected sha256", "got ", "checksum",
                "hash mismatch", "sha256:")  # fmt: skip
_CAUSES = (
    (_SUMS, "what was downloaded is not what the repository has the sum of, and was not used"),
    (("no space left", "disk quota", "errno 28"), "the disk is full"),
    (
        (
            "dns error", "could not resolve", "temporary failure in name", "name resolution",
            "no such host", "network is unreachable", "connection refused", "error sending request",
            "failed to fetch", "connection timed out", "i/o timeout", "unknown host",
        ),
        "the network, or the package registry, cannot be reached",
    ),
)  # fmt: skip


class SetupError(Exception):
    """A set-up step failed; the message says what is missing and what to do, in one line."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _progress(line: str) -> None:
    """Print progress: in place on a terminal, one line each elsewhere."""
    sys.stdout.write(f"\r{line}" if sys.stdout.isatty() else f"{line}\n")
    sys.stdout.flush()


def main_of(step: object, *arguments: object) -> None:
    """Run a set-up step as a program: a SetupError is one line and status 1."""
    try:
        step(*arguments)  # type: ignore[operator]
    except (SetupError, OSError) as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        sys.stderr.write(f"{'the disk is full: make room. ' if full else ''}{error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def run(
    command: Sequence[str | Path],
    purpose: str,
    *,
    advice: str = "",
    cwd: Path = CHECKOUT,
    environment: dict[str, str] | None = None,
) -> str:
    """Run a command, show every 10 s that it still runs, and return its output.

    Raises: SetupError, with the cause in words and the end of the command's output.
    """
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )
    except OSError as error:
        raise SetupError(
            f"{purpose}: cannot run {command[0]}: {error.strerror}. {advice}"
        ) from error
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=10)
                break
            except subprocess.TimeoutExpired:
                _progress(f"  … {purpose}: {time.monotonic() - started:.0f} s")
    except BaseException:  # Also at Ctrl-C, the command must not outlive us.
        process.kill()
        raise
    if sys.stdout.isatty():
        sys.stdout.write("\r\x1b[K")
    if process.returncode:
        raise SetupError(_failure(purpose, output, advice))
    return output


def need_disk(folder: Path, gib: float, purpose: str) -> None:
    """Refuse a step for which the disk has too little room. Raises: SetupError."""
    folder.mkdir(parents=True, exist_ok=True)
    free_gib = shutil.disk_usage(folder).free / 2**30
    if free_gib < gib:
        raise SetupError(
            f"{purpose} needs {gib:g} GiB of free disk, {folder} has {free_gib:.1f}: "
            "make room, or set XDG_CACHE_HOME to another folder"
        )


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Lock the set-up of this name; a second set-up waits and says so."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another set-up of {name} is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _failure(purpose: str, output: str, advice: str) -> str:
    """The message for a failed command: a known cause in one line, else the end of its output.

    The whole output is written to `LOG`.
    """
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.write_text(output)
    lowered = output.lower()
    cause = next((text for signs, text in _CAUSES if any(sign in lowered for sign in signs)), None)
    if cause == _CAUSES[0][1]:
        about = (line.strip() for line in output.splitlines())
        lines = [line for line in about if any(sign in line.lower() for sign in _ABOUT_SUMS)]
        return f"{purpose} failed: {cause}: {'; '.join(lines[:6])}. The output: {LOG}"
    if cause:
        return f"{purpose} failed: {cause}. {advice}. The output: {LOG}"
    end = "\n".join(f"    {line}" for line in output.strip().splitlines()[-8:])
    return f"{end}\n{purpose} failed. {advice}".rstrip()
