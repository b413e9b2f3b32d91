"""Names of files in a git repository, without those that git keeps for itself."""

import re

from activities.artifacts.destinations.sending import name_below
from activities.artifacts.sources.tar_streams import refused

_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""What a file system of Apple leaves out of a name."""
_OWN = re.compile(
    r"\.git|git~[0-9]+|\.gitmodules|gitmod~[0-9]+|gi7eba~[0-9]+|gi7eb[0-9a-f]+~[0-9]+"
)
"""The repository and its list of submodules, also by the short names that Windows gives them."""


def git_name(prefix: str, name: str) -> bytes:
    """The name of a file in the repository, below the prefix.

    Raises: ApplicationError `Refused` for a name that git, on any system, takes for its own.
    """
    below = name_below(prefix, name)
    for part in below.split("/"):
        if part in ("", ".", ".."):
            raise refused(f"{below[:200]!r}: is no name of a file in a git repository")
        if any(_is_own(each) for each in part.split("\\")):
            raise refused(f"{below[:200]!r}: is a name that git keeps for itself; rename the file")
    return below.encode("utf-8", "surrogateescape")


def quoted(name: bytes) -> bytes:
    """A name as `fast-import` reads it."""
    escaped = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def _is_own(part: str) -> bool:
    """Whether a system takes this for a name of git: without case, streams, or dots at its end."""
    plain = _IGNORED.sub("", part).partition(":")[0].rstrip(" .").casefold()
    return _OWN.fullmatch(plain) is not None
