"""The log of what a device runs now, read from the device itself."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.authorization import Caller, Needs
from api.event_streams import MEDIA_TYPE, described
from api.services import device_logs
from api.sessions.device_logs import FollowedLog, opened, read_all
from workflows.contracts.sessions import MOST_LOG_LINES, DeviceLogRequest, LogPlace

router = APIRouter(prefix="/v1/devices", tags=["devices"])
Reader = Annotated[Caller, Depends(Needs("devices:read"))]
OFFSET_HEADER = "Baseload-Log-Offset"
DEFAULT_LINES = 1000
PLACE = r"^[0-9]{1,10}-[0-9]{1,16}$"
_LOG: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The log's bytes; or a stream of pieces, each with the place to resume at"
        " as id, and a last message named `end`, or `problem` when the device is lost.",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            **described("DeviceLogPiece", ends=True, fails=True),
        },
        "headers": {
            OFFSET_HEADER: {"description": "Of the first byte.", "schema": {"type": "integer"}},
        },
    }
}


def _asked(
    lines: Annotated[
        int, Query(ge=0, le=MOST_LOG_LINES, description="How many of its last lines at most.")
    ] = DEFAULT_LINES,
    follow: Annotated[
        bool, Query(description="As server-sent events, until what runs has ended")
    ] = False,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", max_length=30, pattern=PLACE)
    ] = None,
) -> DeviceLogRequest:
    follows = follow or (accept is not None and MEDIA_TYPE in accept)
    after = None
    if follows and last_event_id is not None:
        number, _, offset = last_event_id.partition("-")
        after = LogPlace(number=int(number), offset=int(offset))
    return DeviceLogRequest(lines=lines, follow=follows, after=after)


@router.get(
    "/{device_id}/logs", operation_id="get_device_logs", response_class=Response, responses=_LOG
)
async def get_device_logs(
    request: Request,
    device_id: str,
    caller: Reader,
    asked: Annotated[DeviceLogRequest, Depends(_asked)],
) -> Response:
    """The log of what a device runs now, its last lines; with `follow`, as it grows from there on.

    It is bounded on the device, which keeps its last 8 to 16 MiB, and at most 4 MiB are read at
    once. It begins anew when what runs is started anew.
    """
    place = await run_in_threadpool(device_logs.place_of, caller, device_id)
    about = (place.account_id, device_id)
    await run_in_threadpool(request.app.state.reads.note, request, caller, about)
    if asked.follow:

        async def check() -> None:
            await run_in_threadpool(device_logs.check, caller, device_id)

        return FollowedLog(request, caller.key_id, place, asked, check)
    async with opened(request, caller.key_id, place, asked) as log:
        offset, content = await read_all(log)
    headers = {OFFSET_HEADER: str(offset), "X-Content-Type-Options": "nosniff"}
    return Response(content, headers=headers, media_type="text/plain; charset=utf-8")
