"""The task queues of an installation, as tests serve them."""

from workflows.contracts import queues
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import cloud_kinds


def task_queues() -> tuple[str, ...]:
    """Every task queue but those of regions with a worker of their own; that of workflows first."""
    clouds = (queues.CLOUD, queues.RELEASES)
    return (
        queues.MAIN,
        queues.PLANNING,
        queues.NOTIFICATIONS,
        queues.TRANSFERS,
        queues.SITE,
        queues.watches_of(queues.SITE),
        *(queues.of_kind(queue, ProviderKind(kind)) for kind in cloud_kinds() for queue in clouds),
    )
