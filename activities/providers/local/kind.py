"""This host as a provider kind: machines for development and for CI, free of charge."""

from activities.providers.base import Kind
from activities.providers.local.catalogue import local_offers
from activities.providers.local.conditions import check_host
from activities.providers.local.driver import local_machines
from workflows.contracts.statuses import ProviderKind

KIND = Kind(kind=ProviderKind.LOCAL, checks=check_host, driver=local_machines, offers=local_offers)
