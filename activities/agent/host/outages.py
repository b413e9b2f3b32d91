"""Whether an image registry or a package index was away, by what podman or pip said at the end.

What is away for a moment is asked again later; what is not there, or not permitted, stays so.
"""

from __future__ import annotations

import re

FINAL = re.compile(
    r"manifest unknown|name unknown|not found|unauthorized|denied|authentication required"
    r"|\b40[134]\b|no matching manifest",
    re.IGNORECASE,
)
AWAY = re.compile(
    r"no such host|server misbehaving|name resolution|name or service not known|getaddrinfo"
    r"|i/o timeout|handshake timeout|deadline exceeded|client\.timeout|timed out|timeout error"
    r"|connection (refused|reset|aborted)|broken pipe|network is unreachable|no route to host"
    r"|unexpected eof|: eof$|remote end closed|incompleteread|too ?many ?requests"
    r"|(status|statuscode|code|error|many)\W{1,2}(code from registry )?(429|5\d\d)\b"
    r"|\b429 client error"
    r"|\b5\d\d (server error|internal server error|bad gateway|service unavailable|gateway time)",
    re.IGNORECASE | re.MULTILINE,
)
LAST_TRY = re.compile(r"Retrying \(Retry\(total=0,.*after connection broken")
"""What pip says before it gives up an index; later it says only that it has found no version."""
NO_VERSION = re.compile(
    r"^ERROR: (No matching distribution found|ResolutionImpossible)", re.MULTILINE
)
UNREAD_PAGE = re.compile(r"Could not fetch URL (\S+): (.*) - skipping$", re.MULTILINE)
"""What pip says of a page of an index that it could not read, and only with `-vv`."""


def of_registry(output: str) -> bool:
    """Whether the registry was away, by the error with which podman's output ends."""
    begin = output.rfind("\nError:") + 1
    said = output[begin:]
    return bool(AWAY.search(said)) and not FINAL.search(_without_addresses(said))


def of_index(output: str) -> bool:
    """Whether the package index was away, by the errors of pip."""
    if NO_VERSION.search(output):
        return bool(LAST_TRY.search(output))
    errors = "\n".join(line for line in output.splitlines() if "ERROR: " in line)
    return bool(AWAY.search(errors)) and not FINAL.search(_without_addresses(errors))


def may_hide_index(output: str) -> bool:
    """Whether pip has found no version, which it also says where an index refuses it for now."""
    return bool(NO_VERSION.search(output))


def of_pages(output: str) -> bool:
    """Whether a package index was away, by the pages that pip, asked with `-vv`, did not read."""
    reasons = [_without_addresses(found[2]) for found in UNREAD_PAGE.finditer(output)]
    return any(AWAY.search(reason) and not FINAL.search(reason) for reason in reasons)


def _without_addresses(text: str) -> str:
    """Names of images and packages may hold any word."""
    return re.sub(r"\S*[/]\S*", "", text)
