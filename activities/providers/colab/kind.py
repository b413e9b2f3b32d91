"""Google Colab as a provider kind: a notebook that its user opens, and that announces itself."""

import json
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from activities.db.session import database
from activities.db.tables import ColabEndpointRow
from activities.providers.base import Bootstrap, Kind
from activities.providers.colab.driver import RUN_THE_CELL, colab_machines, colab_offers
from activities.providers.colab_endpoints import is_open
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind

PROGRAM = Path(__file__).with_name("bootstrap_cell.py")


def check_colab(provider_id: str) -> tuple[Check, ...]:
    """Say whether a notebook has announced itself, without which the provider is ready too."""
    with database().read() as session:
        row = session.get(ColabEndpointRow, provider_id)
    if row is not None and is_open(row, datetime.now(UTC)):
        detail = f"announced at {row.host}:{row.port}, until {row.expires_at:%F %T} UTC"
        return (Check(name="endpoint", status="passed", detail=detail),)
    detail = "no notebook has announced itself, or its endpoint has expired"
    return (Check(name="endpoint", status="warning", detail=detail, fix=RUN_THE_CELL),)


def cell_of(values: Bootstrap) -> str:
    """The text of the cell for one announcement: a module that is run in notebooks alone."""
    text = _program()
    for name in ("api_url", "token", "public_key"):
        text = text.replace(f'"{{{{{name}}}}}"', json.dumps(getattr(values, name)))
    return text


@lru_cache(maxsize=1)
def _program() -> str:
    return PROGRAM.read_text()


KIND = Kind(
    kind=ProviderKind.COLAB,
    checks=check_colab,
    driver=colab_machines,
    offers=colab_offers,
    bootstrap=cell_of,
)
