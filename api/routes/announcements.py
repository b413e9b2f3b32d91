"""Announcements: machines make themselves known, with a join token and a rate limit."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from api.authorization import address_of
from api.changes import Change, change_of
from api.problems import too_many
from api.rate_limits import peer_of
from api.schemas.nodes import AnnouncementCreation, AnnouncementReceipt
from api.services import announcements

router = APIRouter(prefix="/v1/announcements", tags=["nodes"])


async def announcing(
    request: Request,
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(alias="Idempotency-Key", max_length=255, min_length=1)
    ] = None,
) -> Change:
    """The change of an announcement, which nobody's API key has asked for.

    Raises: Problem `too-many-requests`.
    """
    peer = peer_of(address_of(request))
    wait_s = request.app.state.announcement_rate.wait_s(peer)
    if wait_s > 0:
        raise too_many(f"announcements from {peer}", wait_s)
    sent = (idempotency_key, await request.body())
    return change_of(request, response, announcements.anonymous_caller(), sent)


@router.post("", status_code=202, operation_id="announce_machine")
async def announce_machine(
    asked: AnnouncementCreation, change: Annotated[Change, Depends(announcing)]
) -> AnnouncementReceipt:
    """Announce the address of a machine, with a join token instead of an API key.

    The machine's host key proves its identity at every connection.
    """
    return await change.apply(
        AnnouncementReceipt, lambda context: announcements.announce(context, asked)
    )
