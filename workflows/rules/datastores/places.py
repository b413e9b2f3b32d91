"""The rules for the places of datastores: addresses, root paths, and paths below these.

The agent checks paths again by rules of its own, because it opens them.
"""

import re
import unicodedata
from collections.abc import Iterable
from ipaddress import ip_address, ip_network

MOST_PATH = 1024
MOST_NAME_BYTES = 255
ADDRESS_RULE = "is a name or an address, with :PORT where it is not the usual one"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_USER = re.compile(r"[^\x00-\x1f,/:]{1,200}")
CLOSED = (
    "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "100.100.100.200/32",
    "168.63.129.16/32",
    "224.0.0.0/4", "240.0.0.0/4",
    "::/96", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::/32",
    "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32",
)  # fmt: skip
"""Where no datastore is: loopback, link-local, multicast and reserved addresses, those at which
clouds tell a machine its secrets, and those behind which there is another address."""
CLOSED_RULE = "is no loopback, link-local, multicast, reserved or metadata address"
_OF_SMB = frozenset(':*?"<>|')


def parse_address(address: str) -> tuple[str, int | None] | None:
    """Host and port of `nas:2049`, `nas`, `10.0.0.4` or `[fd00::4]:445`; None: it is none."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(\d{1,5}))?", address)
    plain = re.fullmatch(r"([^:\[\]]*)(?::(\d{1,5}))?", address)
    found = bracketed or plain
    if found is None:
        return None
    host, port = found[1], found[2]
    if not (_IPV6 if bracketed else _HOST).fullmatch(host):
        return None
    if port is not None and not 1 <= int(port) <= 65_535:
        return None
    return host, None if port is None else int(port)


def is_closed(host: str, opened: Iterable[str], closed: Iterable[str]) -> bool:
    """Whether this is an address at which no datastore may be; a name is checked by the nodes.

    opened, closed: the networks of the installation, which come first and last.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    if any(address in ip_network(one) for one in opened):
        return False
    return any(address in ip_network(one) for one in (*CLOSED, *closed))


def root_path_mistake(path: str, *, is_smb: bool) -> str | None:
    """The rule that a root path breaks; None: none."""
    if not path.startswith("/"):
        return "is absolute: /SHARE or /SHARE/FOLDER" if is_smb else "is absolute: /FOLDER"
    if is_smb and path.strip("/") == "":
        return "names the share: /SHARE or /SHARE/FOLDER"
    return path_mistake(path[1:], is_smb=is_smb)


def path_mistake(path: str, *, is_smb: bool = False) -> str | None:
    """The rule that a path below a root path breaks; None: none. `/` is all of the datastore."""
    if len(path) > MOST_PATH:
        return f"has at most {MOST_PATH} characters"
    if path in ("", "/", "."):
        return None
    names = path.removesuffix("/").split("/")
    return next((rule for name in names if (rule := _name_mistake(name, is_smb))), None)


def _name_mistake(name: str, is_smb: bool) -> str | None:
    if name == "":
        return "is relative to the root path, without empty names; / alone is all of it"
    plain = unicodedata.normalize("NFKC", name)
    if {plain, plain.strip(" .")} & {"", ".", ".."}:
        return "has no names . and .., nor any that a server may take for these"
    if not name.isprintable() or "\\" in plain or "/" in plain:
        return "has printable characters alone, and no backslash"
    if len(name.encode(errors="replace")) > MOST_NAME_BYTES:
        return f"has names of at most {MOST_NAME_BYTES} bytes"
    if is_smb and (_OF_SMB & set(name) or name[-1] in " ."):
        return 'has no : * ? " < > | in a name of SMB, and no blank or dot at its end'
    return None


def is_user(user: str) -> bool:
    """Whether this may be the name of a user, with DOMAIN\\ before it if there is one."""
    return user.isprintable() and _USER.fullmatch(user) is not None
