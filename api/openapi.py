"""The OpenAPI document as text, the same for every process."""

import json

from api.app import create_app


async def _nothing(*_: object) -> None:
    return


def document() -> str:
    """What is checked in as `api/openapi.json`."""
    return json.dumps(create_app(_nothing, _nothing).openapi(), indent=1, ensure_ascii=False) + "\n"
