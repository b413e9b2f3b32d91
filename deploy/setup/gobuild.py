"""Builds a Go program from a pinned module into the cache."""

import shutil
import tempfile
from pathlib import Path

from console import CACHE, SetupError, locked, need_disk, run, say


def build(pin: Path, package: str, target: Path, minutes: str) -> Path:
    """Build `package` once, as pinned by `pin`/go.mod and go.sum, and return the program's path.

    Go adds nothing to the two files, and builds no module that go.sum does not have the sum of.
    Raises: SetupError, when there is no Go, too little disk, a module that is not the pinned one,
    or the build fails.
    """
    with locked(CACHE, target.name):
        if target.exists():
            return target
        go = shutil.which("go")
        if go is None:
            raise SetupError(
                f"{target.name} has to be built, and there is no Go. "
                "Install Go 1.25 or newer (https://go.dev/dl), or put the program on PATH"
            )
        need_disk(CACHE, 4, f"building {target.name}")
        say(f"building {target.name} from its Go module, once ({minutes})")
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="build-") as folder:
            for name in ("go.mod", "go.sum"):
                shutil.copy(pin / name, folder)
            built = Path(folder) / "built"
            run(
                [go, "build", "-mod=readonly", "-o", built, package],
                f"building {target.name}",
                advice="It needs Go 1.25 or newer and a Go module proxy (GOPROXY)",
                cwd=Path(folder),
                environment={"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"},
            )
            built.replace(target)
    return target
