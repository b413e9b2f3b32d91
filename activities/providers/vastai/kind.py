"""Vast.ai as a provider kind, with all its capabilities."""

from activities.providers.base import CredentialsReader, Kind
from activities.providers.vastai.catalogue import vastai_offers
from activities.providers.vastai.checks import check_vastai
from activities.providers.vastai.driver import vastai_machines
from activities.providers.vastai.key import read_key
from workflows.contracts.statuses import ProviderKind

KIND = Kind(
    kind=ProviderKind.VASTAI,
    checks=check_vastai,
    credentials=CredentialsReader(read_key, "an API key of Vast.ai"),
    driver=vastai_machines,
    offers=vastai_offers,
)
