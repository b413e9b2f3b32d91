"""The OpenAPI document as text, the same for every process."""

import json

from activities.outbox.dispatcher import OutboxDispatcher
from api.app import create_app


async def _nothing(*_: object) -> None:
    return


def document() -> str:
    """The content of `api/openapi.json`."""
    app = create_app(OutboxDispatcher(_nothing), _nothing)
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"
