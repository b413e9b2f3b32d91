"""The gateway of a router: the actions of its WANIPConnection or WANPPPConnection service.

Source: UPnP Forum, `WANIPConnection:1` and `:2`, `WANPPPConnection:1`.
"""

from __future__ import annotations

import ipaddress
from typing import Dict, NamedTuple, Optional, Tuple
from xml.sax.saxutils import escape

from .documents import parse
from .exchange import Deadline, Place, RouterError, ask

SERVICES = (
    "urn:schemas-upnp-org:service:WANIPConnection:2",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
)
DESCRIPTION = "baseload"
ENVELOPE = (
    '<?xml version="1.0"?>\r\n'
    '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" '
    's:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body>'
    '<u:%(action)s xmlns:u="%(service)s">%(arguments)s</u:%(action)s>'
    "</s:Body></s:Envelope>\r\n"
)
REASONS = {
    401: "it does not know the action",
    402: "it finds the request wrong",
    501: "it failed, as it says",
    606: "it does not allow it",
    714: "it has no such mapping",
    715: "it wants a remote host named",
    718: "another machine has that port",
    724: "it maps a port only to the same port",
    725: "it keeps mappings for ever only",
    728: "it has no room for another mapping",
    729: "another mechanism of it has that port",
}
NO_SUCH_MAPPING = 714
CONFLICTS = (718, 729)
SAME_PORTS = 724
PERMANENT_ONLY = 725


class ActionError(RouterError):
    """The router refuses an action; `code` is the error code of UPnP, 0 where it gave none."""

    def __init__(self, action: str, code: int) -> None:
        reason = REASONS.get(code, "it gives no reason that is known")
        super().__init__("the router refuses %s: %s (error %d)" % (action, reason, code))
        self.code = code


class Gateway(NamedTuple):
    """One service of a router that maps ports, and this machine's address as the router sees it."""

    service: str
    control: Place
    own_address: str

    def external_address(self, deadline: Deadline) -> ipaddress.IPv4Address:
        """The router's address outside. Raises: RouterError, when it has none."""
        said = self._do("GetExternalIPAddress", {}, deadline).get("NewExternalIPAddress", "")
        try:
            address = ipaddress.IPv4Address(said)
        except ValueError:
            raise RouterError("the router has no external address") from None
        if address.is_unspecified:
            raise RouterError("the router has no external address: it is not connected")
        return address

    def add(
        self, external_port: int, internal_port: int, lifetime_s: int, deadline: Deadline
    ) -> None:
        """Map the TCP port, or prolong the mapping; lifetime 0: for ever.

        Raises: RouterError, ActionError.
        """
        arguments = {
            "NewRemoteHost": "",
            "NewExternalPort": external_port,
            "NewProtocol": "TCP",
            "NewInternalPort": internal_port,
            "NewInternalClient": self.own_address,
            "NewEnabled": 1,
            "NewPortMappingDescription": DESCRIPTION,
            "NewLeaseDuration": lifetime_s,
        }
        self._do("AddPortMapping", arguments, deadline)

    def delete(self, external_port: int, deadline: Deadline) -> None:
        """Delete the mapping; silent when there is none. Raises: RouterError, ActionError."""
        try:
            self._do("DeletePortMapping", _entry(external_port), deadline)
        except ActionError as error:
            if error.code != NO_SUCH_MAPPING:
                raise

    def client_of(self, external_port: int, deadline: Deadline) -> Optional[Tuple[str, str]]:
        """The address and port that the external port leads to; None: free, or it does not say.

        Raises: RouterError, when the router does not answer.
        """
        try:
            said = self._do("GetSpecificPortMappingEntry", _entry(external_port), deadline)
        except ActionError:
            return None
        if "NewInternalClient" not in said:
            return None
        return said["NewInternalClient"], said.get("NewInternalPort", "")

    def _do(self, action: str, arguments: Dict[str, object], deadline: Deadline) -> Dict[str, str]:
        written = "".join(
            "<%s>%s</%s>" % (name, escape(str(value)), name) for name, value in arguments.items()
        )
        asked = {"action": action, "service": self.service, "arguments": written}
        head = 'POST\r\nContent-Type: text/xml; charset="utf-8"\r\nSOAPAction: "%s#%s"' % (
            self.service,
            action,
        )
        status, body = ask(self.control, head, (ENVELOPE % asked).encode(), deadline)
        if status == 200:
            answers = parse(body).all(action + "Response")
            return next((answer.texts() for answer in answers), {})
        raise ActionError(action, _error_code(body))


def _entry(external_port: int) -> Dict[str, object]:
    return {"NewRemoteHost": "", "NewExternalPort": external_port, "NewProtocol": "TCP"}


def _error_code(body: bytes) -> int:
    try:
        codes = parse(body).all("errorCode")
        return int(next((code.text.strip() for code in codes), "0")[:6])
    except (RouterError, ValueError):
        return 0
