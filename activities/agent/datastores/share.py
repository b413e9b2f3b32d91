"""A datastore as a request names it, and the rules of paths below its root path."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Dict, NamedTuple, Optional

from ..errors import RefusedError

ID = re.compile(r"dst-[a-z0-9]{1,60}\Z")
_WANT_HOST = "%s: host %r: want a name or an address"
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?\Z")
USER = re.compile(r"[^\x00-\x1f,/:]{1,200}\Z")
MOST_PATH = 1024
MOST_NAME_BYTES = 255
NFS, SMB = "nfs", "smb"
_FORBIDDEN_OF_SMB = set(':*?"<>|')
"""Windows gives these a meaning: other streams of a file, and patterns."""


class Share(NamedTuple):
    """A datastore: a folder of a server, all of which jobs may use."""

    id: str
    type: str
    host: str
    port: Optional[int]
    root_path: str
    user: Optional[str]
    password: Optional[str]
    networks: Optional[Dict[str, Any]] = None
    """Where datastores may be, as `addresses.py` says."""
    address: Optional[str] = None
    """The address that was found and checked for the host; None: not yet."""

    def __repr__(self) -> str:
        return "Share(%s)" % self.place

    @property
    def place(self) -> str:
        """Where it is, for people."""
        at = self.host if self.port is None else "%s:%d" % (self.host, self.port)
        return "%s://%s%s" % (self.type, at, self.root_path)

    @property
    def at(self) -> str:
        """The address to connect. Raises: ValueError, when it was not checked."""
        if self.address is None:
            raise ValueError("%s: its address is not checked" % self.place)
        return self.address

    def parts_of(self, path: Any) -> list[str]:
        """The names of a path below the root path. Raises: RefusedError `datastore-path`."""
        return parts_of(path, is_smb=self.type == SMB)


def share_of(document: Any) -> Share:
    """The datastore of a request. Raises: RefusedError `bad-datastore`, `datastore-path`."""
    given = dict(document or {})
    given["address"] = None  # That is found here.
    found = Share(**{name: given.get(name) for name in Share._fields})  # type: ignore[arg-type]
    if not ID.match(str(found.id)) or found.type not in (NFS, SMB):
        raise RefusedError("bad-datastore", "%r: no datastore of type nfs or smb" % (found.id,))
    if not HOST.match(str(found.host)):
        raise RefusedError("bad-datastore", _WANT_HOST % (found.id, found.host))
    if found.port is not None and not 0 < int(found.port) < 65536:
        raise RefusedError("bad-datastore", "%s: port %r: want 1 to 65535" % (found.id, found.port))
    if found.user is not None and not USER.match(found.user):
        raise RefusedError("bad-datastore", "%s: user: want a name" % found.id)
    root = found.root_path
    if not isinstance(root, str) or not root.startswith("/"):
        raise RefusedError("bad-datastore", "%s: root path %r: want /…" % (found.id, root))
    names = parts_of(root[1:], is_smb=found.type == SMB)
    if found.type == SMB and not names:
        raise RefusedError("bad-datastore", "%s: root path: want /SHARE or /SHARE/…" % found.id)
    return found._replace(root_path="/" + "/".join(names))


def parts_of(path: Any, *, is_smb: bool) -> list[str]:
    """The names of a path that is relative to a root; empty for `/`, which is the root itself.

    Raises: RefusedError `datastore-path`, when it is absolute, leaves the root, or has names by
    which a server could mean something else than what they say.
    """
    if not isinstance(path, str) or len(path) > MOST_PATH:
        raise RefusedError("datastore-path", "path: want a text of at most %d" % MOST_PATH)
    if path in ("", "/", "."):
        return []
    names = path[:-1].split("/") if path.endswith("/") else path.split("/")
    for name in names:
        rule = broken_rule(name, is_smb)
        if rule is not None:
            raise RefusedError("datastore-path", "path %r: %s" % (path, rule))
    return names


def broken_rule(name: str, is_smb: bool) -> str | None:
    """The rule that one name of a path breaks; None: none."""
    if name == "":
        return "is relative to the root path, without empty names"
    plain = unicodedata.normalize("NFKC", name)
    if {plain, plain.strip(" .")} & {"", ".", ".."}:
        return "has no names . and .., nor any that a server may take for these"
    if not name.isprintable() or "\\" in plain or "/" in plain:
        return "has printable characters alone, and no backslash"
    if len(name.encode(errors="replace")) > MOST_NAME_BYTES:
        return "has names of at most %d bytes" % MOST_NAME_BYTES
    if is_smb and (_FORBIDDEN_OF_SMB & set(name) or name[-1] in " ."):
        return 'has no : * ? " < > | in a name of SMB, and no blank or dot at its end'
    return None
