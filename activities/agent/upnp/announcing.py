"""The announcement of this machine by the keeper, as join.sh makes the first one."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.error
import urllib.request
from typing import Any, Dict

LIMIT_S = 20.0
MOST_BYTES = 64 * 1024
UNAUTHORIZED = 401


class NotAnnouncedError(Exception):
    """The platform does not take the announcement now."""


class NotJoinedError(NotAnnouncedError):
    """The join token is not valid any more: the machine's node, or its region, was removed."""


def host_key_of(path: str) -> str:
    """The type and base64 of an OpenSSH public key file. Raises: OSError."""
    with open(path) as file:
        return " ".join(file.read(8192).split()[:2])


def announce(api: str, token: str, joined: Dict[str, Any], address: str, port: int) -> Any:
    """Announce the machine at this address, and return the platform's receipt.

    joined: `host_key`, the path of the public host key, and `user`.
    Raises: NotAnnouncedError, NotJoinedError.
    """
    try:
        public_key = host_key_of(joined["host_key"])
        digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
        announcement = {
            "token": token,
            "minion_id": "SHA256:" + base64.b64encode(digest).decode().rstrip("="),
            "host_public_key": public_key,
            "address": address,
            "port": port,
            "user": joined["user"],
        }
        request = urllib.request.Request(
            api + "/v1/announcements",
            json.dumps(announcement).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            receipt = json.loads(answer.read(MOST_BYTES) or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            kind = NotJoinedError if error.code == UNAUTHORIZED else NotAnnouncedError
            raise kind("%s refused the announcement (%d)" % (api, error.code)) from None
    except (OSError, ValueError, IndexError) as error:
        message = "cannot announce this machine to %s: %s" % (api, error)
        raise NotAnnouncedError(message) from None
    return receipt if isinstance(receipt, dict) else {}
