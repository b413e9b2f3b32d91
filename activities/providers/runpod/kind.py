"""RunPod as a provider kind, with all its capabilities."""

from activities.providers.base import CredentialsReader, Kind
from activities.providers.runpod.catalogue import runpod_offers
from activities.providers.runpod.checks import check_runpod
from activities.providers.runpod.driver import runpod_machines
from activities.providers.runpod.key import read_key
from workflows.contracts.statuses import ProviderKind

KIND = Kind(
    kind=ProviderKind.RUNPOD,
    checks=check_runpod,
    credentials=CredentialsReader(read_key, "an API key of RunPod"),
    driver=runpod_machines,
    offers=runpod_offers,
)
