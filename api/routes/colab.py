"""Notebooks of Colab: their users get a cell, and the notebooks announce themselves."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from api.changes import Change, changing
from api.routes.announcements import announcing
from api.schemas.base import ResourceId
from api.schemas.colab import (
    ColabAnnouncementCreation,
    ColabAnnouncementReceipt,
    ColabBootstrap,
)
from api.services import colab

router = APIRouter(prefix="/v1/colab", tags=["providers"])
Writer = Annotated[Change, changing("providers:write")]


@router.get("/bootstrap", operation_id="get_colab_bootstrap")
async def get_colab_bootstrap(
    provider_id: Annotated[ResourceId, Query()], request: Request, change: Writer
) -> ColabBootstrap:
    """A cell for a notebook, with a one-time token that voids the one before.

    The cell has the address of this API by which it was asked for.
    """
    api_url = str(request.base_url).rstrip("/")
    return await change.apply(
        ColabBootstrap, lambda context: colab.make_bootstrap(context, provider_id, api_url)
    )


@router.post("/announcements", status_code=202, operation_id="announce_colab_endpoint")
async def announce_colab_endpoint(
    asked: ColabAnnouncementCreation, change: Annotated[Change, Depends(announcing)]
) -> ColabAnnouncementReceipt:
    """Announce where a notebook is reached, with the cell's one-time token in place of an API key.

    The host key proves the notebook's identity at every connection from then on.
    """
    await run_in_threadpool(colab.check_token, asked.token)
    await colab.check_address(asked.host, asked.port)
    return await change.apply(
        ColabAnnouncementReceipt, lambda context: colab.announce(context, asked)
    )
