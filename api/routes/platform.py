"""The platform: the key by which nodes know whose runs they have."""

from typing import Annotated

from fastapi import APIRouter, Depends

from activities.secrets.platform_key import platform_key_fingerprint
from api.authorization import Caller, Needs
from api.schemas.base import ResponseBody

router = APIRouter(prefix="/v1/platform", tags=["health"])
Reader = Annotated[Caller, Depends(Needs("account:read"))]


class Platform(ResponseBody):
    ssh_key_fingerprint: str
    """The fingerprint of the platform key, by which nodes know whose runs they have.

    Machines let in the key of their region (`POST /v1/join-tokens`).
    """


@router.get("", operation_id="get_platform")
def get_platform(_caller: Reader) -> Platform:
    """The key by which nodes know whose runs they have."""
    return Platform(ssh_key_fingerprint=platform_key_fingerprint())
