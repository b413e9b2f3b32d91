"""The Temporal binary: from the environment, PATH, cache, a download or a build, in that order.

The binary's path is written to `.baseload/temporal-binary` for the runner and the tests.
"""

import io
import os
import platform
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from console import CACHE, CHECKOUT, SetupError, locked, main_of, say
from gobuild import build
from sums import check_sum, recorded_sums

VERSION = "1.5.1"
CACHED = CACHE / f"temporal-{VERSION}"
PIN = CHECKOUT / "deploy" / "temporal"
SUMS = PIN / "archives.sha256"
RELEASE = f"https://github.com/temporalio/cli/releases/download/v{VERSION}"
NOTE = CHECKOUT / ".baseload" / "temporal-binary"
DOWNLOAD_LIMIT_S = 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "amd64": "amd64"}


def set_up_temporal() -> None:
    """Find or make the Temporal binary and write its path."""
    binary = _named() or _on_path() or _cached() or _downloaded() or _built()
    NOTE.parent.mkdir(exist_ok=True)
    if not NOTE.exists() or NOTE.read_text().strip() != str(binary):
        part = NOTE.with_suffix(f".{os.getpid()}.part")
        part.write_text(f"{binary}\n")
        part.replace(NOTE)
        say(f"Temporal: {binary}")


def _named() -> Path | None:
    name = os.environ.get("BASELOAD_TEMPORAL")
    if not name:
        return None
    if not os.access(name, os.X_OK):
        raise SetupError(f"BASELOAD_TEMPORAL={name} is not a program: unset or correct it")
    return Path(name).absolute()


def _on_path() -> Path | None:
    found = shutil.which("temporal")
    return Path(found) if found else None


def _cached() -> Path | None:
    return CACHED if os.access(CACHED, os.X_OK) else None


def _downloaded() -> Path | None:
    """Download the release's binary; None if it cannot be had within a short wait.

    Raises: SetupError, when it is not the archive that the repository has the sum of.
    """
    arch = _ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    name = f"temporal_cli_{VERSION}_{sys.platform}_{arch}.tar.gz"
    if name not in recorded_sums(SUMS):
        say(f"{SUMS.name} has no sum of {name}: it is not downloaded")
        return None
    say(f"downloading Temporal {VERSION} (at most {DOWNLOAD_LIMIT_S} s)")
    url = f"{os.environ.get('BASELOAD_TEMPORAL_MIRROR', RELEASE)}/{name}"
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_LIMIT_S) as answer:  # noqa: S310
            archive = bytes(answer.read())
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        say(f"  the download failed ({reason})")
        return None
    check_sum(name, archive, SUMS, url)
    with tarfile.open(fileobj=io.BytesIO(archive)) as unpacked:
        program = unpacked.extractfile("temporal")
        content = program.read() if program is not None else b""
    with locked(CACHE, CACHED.name):
        part = CACHED.with_suffix(".part")
        part.write_bytes(content)
        part.chmod(0o755)
        part.replace(CACHED)
    return CACHED


def _built() -> Path:
    package = "github.com/temporalio/cli/cmd/temporal"
    return build(PIN, package, CACHED, "about 3 minutes on two cores")


if __name__ == "__main__":
    main_of(set_up_temporal)
