"""The SHA-256 sums of what is downloaded: the repository has them, and nothing else is used."""

import hashlib
from pathlib import Path

from console import CHECKOUT, SetupError


def recorded_sums(file: Path) -> dict[str, str]:
    """The sums of a file as `sha256sum` writes it, by the name of what they are of."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: sha256 for sha256, name in lines}


def check_sum(name: str, content: bytes, sums: Path, source: str) -> None:
    """Refuse what is not the thing that the repository has the sum of.

    name: its name in the file `sums`; source: where it was found, for the message.
    Raises: SetupError.
    """
    asked = recorded_sums(sums).get(name, "none")
    found = hashlib.sha256(content).hexdigest()
    if found != asked:
        raise SetupError(
            f"{name}: asked the SHA-256 {asked} of {sums.relative_to(CHECKOUT)}, "
            f"found {found} in what came from {source}. It was not used: somebody changed it on "
            "its way, or there. Try another network or mirror"
        )


def check_folder(folder: Path, sums: Path, source: str) -> None:
    """Refuse a folder whose files are not exactly those that the repository has the sums of.

    Raises: SetupError.
    """
    for file in sorted(folder.iterdir()):
        check_sum(file.name, file.read_bytes(), sums, source)
    missing = sorted(recorded_sums(sums).keys() - {file.name for file in folder.iterdir()})
    if missing:
        raise SetupError(
            f"{', '.join(missing)}: asked by {sums.relative_to(CHECKOUT)}, "
            f"found nothing of this name in what came from {source}"
        )
