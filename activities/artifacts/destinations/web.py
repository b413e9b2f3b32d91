"""Web servers, to which the stored archive of an output is sent by one PUT."""

import re
from collections.abc import Iterator

from activities.artifacts.destinations.http_sending import HttpSender, Reply
from activities.artifacts.destinations.sending import Sending
from activities.artifacts.sources.source_addresses import shown_url
from activities.artifacts.sources.tar_streams import refused, unavailable
from workflows.contracts.deliveries import WebDestination

_HEADER = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What the value of a header may be."""


def deliver_web(destination: WebDestination, authorization: str | None, sending: Sending) -> str:
    """Send the stored tar.gz of an output to a URL, and say where it is. Blocking.

    A repeat sends it once more, which a server takes as the same file.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    shown = shown_url(destination.url)
    headers = {"Content-Type": "application/gzip", "Content-Length": str(sending.packed_bytes)}
    if authorization is not None:
        if not _HEADER.fullmatch(authorization):
            raise refused(
                f"{shown}: secret {destination.secret} is no header: one line of ASCII is"
            )
        headers["Authorization"] = authorization
    with HttpSender() as sender:
        body = (headers, _chunks(sending))
        _check(shown, sender.send("PUT", destination.url, body, shown))
    sending.tell(sending.file_count)
    return shown


def _chunks(sending: Sending) -> Iterator[bytes]:
    for chunk in sending.packed():
        yield chunk
        sending.tell(0)


def _check(shown: str, reply: Reply) -> None:
    if reply.is_taken:
        return
    if reply.may_be_repeated:
        raise unavailable(f"{shown}: its server answers {reply.status}")
    if 300 <= reply.status < 400:
        raise refused(
            f"{shown}: leads elsewhere ({reply.status}), which is not followed; name the URL "
            "that takes the file"
        )
    raise refused(f"{shown}: its server answers {reply.status}")
