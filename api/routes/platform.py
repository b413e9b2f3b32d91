"""The platform: the key that machines must let in."""

from typing import Annotated

from fastapi import APIRouter, Depends

from activities.secrets.platform_key import platform_key_fingerprint, platform_public_key
from api.authorization import Caller, Needs
from api.schemas.base import ResponseBody

router = APIRouter(prefix="/v1/platform", tags=["health"])
Reader = Annotated[Caller, Depends(Needs("account:read"))]


class Platform(ResponseBody):
    ssh_public_key: str
    """The line that a node's authorized_keys must have; `deploy/node/join.sh` adds it."""
    ssh_key_fingerprint: str


@router.get("", operation_id="get_platform")
def get_platform(_caller: Reader) -> Platform:
    """The key with which the platform logs in to its nodes."""
    return Platform(
        ssh_public_key=platform_public_key(), ssh_key_fingerprint=platform_key_fingerprint()
    )
