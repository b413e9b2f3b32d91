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
import zipfile
from json import loads
from pathlib import Path

from console import CACHE, CHECKOUT, SetupError, locked, main_of, say
from gobuild import build

VERSION = "1.5.1"
CACHED = CACHE / f"temporal-{VERSION}"
PIN = CHECKOUT / "deploy" / "temporal"
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
    """Download the binary as the SDK does; None if it cannot be had within a short wait."""
    say(f"downloading Temporal {VERSION} from temporal.download (at most {DOWNLOAD_LIMIT_S} s)")
    arch = _ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    url = f"https://temporal.download/cli/v{VERSION}?arch={arch}&platform={sys.platform}"
    try:
        info = loads(_fetch(url))
        archive_url = str(info["archiveUrl"])
        content = _unpack(archive_url, _fetch(archive_url), str(info["fileToExtract"]))
    except (OSError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        say(f"  the download failed ({reason})")
        return None
    with locked(CACHE, CACHED.name):
        part = CACHED.with_suffix(".part")
        part.write_bytes(content)
        part.chmod(0o755)
        part.replace(CACHED)
    return CACHED


def _fetch(url: str) -> bytes:
    if not url.startswith("https://"):
        raise ValueError(f"{url} is not https")
    with urllib.request.urlopen(url, timeout=DOWNLOAD_LIMIT_S) as answer:  # noqa: S310
        return bytes(answer.read())


def _unpack(url: str, archive: bytes, name: str) -> bytes:
    if url.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(archive)) as unpacked:
            return unpacked.read(name)
    with tarfile.open(fileobj=io.BytesIO(archive)) as unpacked:
        member = unpacked.extractfile(name)
        if member is None:
            raise KeyError(name)
        return member.read()


def _built() -> Path:
    package = "github.com/temporalio/cli/cmd/temporal"
    return build(PIN, package, CACHED, "about 3 minutes on two cores")


if __name__ == "__main__":
    main_of(set_up_temporal)
