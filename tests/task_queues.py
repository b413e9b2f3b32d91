"""The task queues of an installation, as tests serve them."""

from workflows.contracts import queues
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import cloud_kinds


def task_queues(region_id: str) -> tuple[str, ...]:
    """Every task queue, that of workflows first, with the site of one region."""
    clouds = (queues.CLOUD, queues.RELEASES)
    return (
        queues.MAIN,
        queues.PLANNING,
        queues.NOTIFICATIONS,
        queues.site(region_id),
        *(queues.of_kind(queue, ProviderKind(kind)) for kind in cloud_kinds() for queue in clouds),
    )
