"""Starts of workflows from rows, and the lifecycle kinds that build them.

The folder of each noun builds its own starts. `activities/lifecycles/kinds.py` lists the kinds, and
a process that relays outbox rows registers this list when it starts, because this folder imports
none of the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from sqlmodel import Session
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from activities.db.tables import LifecycleRow, RemovableRow
from activities.settings import settings
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import LifecycleNoun, noun_of, workflow_id_of
from workflows.contracts.removals import Removal, RemovalProgress

Row = TypeVar("Row", bound=LifecycleRow)
Input = TypeVar("Input", bound=Contract)
RESOURCE_NAME = SearchAttributeKey.for_keyword_list("ResourceName")
"""The name of the resource: a list of one, because a server allows only ten single keywords."""


@dataclass(frozen=True)
class WorkflowStart(Generic[Input]):
    """The parameters with which Temporal starts the workflow of a resource."""

    workflow: str
    id: str
    argument: Input
    search_attributes: TypedSearchAttributes
    summary: str
    name: str = ""
    """The name of the resource; empty: nobody may find its workflow by it."""

    @property
    def attributes_with_name(self) -> TypedSearchAttributes:
        """The search attributes, and the name of the resource."""
        if not self.name:
            return self.search_attributes
        name = SearchAttributePair(RESOURCE_NAME, [self.name])
        return TypedSearchAttributes([*self.search_attributes, name])


async def start_workflow(client: Client, start: WorkflowStart[Any], **options: Any) -> None:
    """Start the workflow of a resource, with its name where the server knows that attribute.

    A server whose attributes only its administrator registers may not have it yet.
    Raises: RPCError; WorkflowAlreadyStartedError, by the policies in `options`.
    """
    begin = partial(
        client.start_workflow, start.workflow, start.argument, id=start.id, task_queue=queues.MAIN
    )
    options = {"static_summary": start.summary, **options}
    try:
        await begin(search_attributes=start.attributes_with_name, **options)
    except RPCError as cause:
        is_unknown = cause.status is RPCStatusCode.INVALID_ARGUMENT
        if not (start.name and is_unknown and RESOURCE_NAME.name in cause.message):
            raise
        await begin(search_attributes=start.search_attributes, **options)


@dataclass(frozen=True)
class LifecycleKind(Generic[Row, Input]):
    """How the lifecycles of one noun are stored, started and restarted."""

    noun: LifecycleNoun
    table: type[Row]
    start: Callable[[Session, Row], WorkflowStart[Input]]
    resume: Callable[[Session, Row, Input], Input]
    """Adds the progress that the row holds to the request of a start."""
    end: Callable[[Input], Input] | None = None
    """Changes the request of a restart after a person has ended the workflow in Temporal; None:
    the lifecycle goes on all the same."""
    starts_for_removal: bool = False
    """Whether a workflow that has ended is started once more to remove what it left; its request
    has the field `removal`. Otherwise a removal is a signal to a running workflow."""


_kinds: dict[str, LifecycleKind[Any, Any]] = {}


def register(kinds: Iterable[LifecycleKind[Any, Any]]) -> None:
    """Register the lifecycle kinds of this process; call this before the first relay."""
    _kinds.clear()
    _kinds.update({kind.noun.name: kind for kind in kinds})


def kind_of(resource_id: str) -> LifecycleKind[Any, Any]:
    """The lifecycle kind of a resource.

    Raises: ValueError, when no lifecycle has ids like this; RuntimeError, when no kind is
    registered.
    """
    if not _kinds:
        raise RuntimeError("no lifecycle kinds in this process: call register first")
    return _kinds[noun_of(resource_id).name]


def removal_of(row: RemovableRow) -> RemovalProgress | None:
    """The removal that a row says is under way; None: there is none."""
    if row.status != "removing":
        return None
    removal = Removal(
        force=row.removal_force,
        requested_by=row.removal_requested_by or "",
        reschedules=row.removal_reschedules,
    )
    return RemovalProgress(removal=removal)


def workflow_start(
    row: LifecycleRow, argument: Input, found_by: dict[str, str]
) -> WorkflowStart[Input]:
    """The start of a row's workflow.

    found_by: search attributes besides those of the account and the status. These stay plain, so
    the name is none of them where payloads are encrypted.
    """
    noun = noun_of(row.id)
    named = {"AccountId": row.account_id, "ResourceStatus": row.status, **found_by}
    pairs = [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
        for name, value in named.items()
    ]
    return WorkflowStart(
        workflow=noun.workflow,
        id=workflow_id_of(row.id),
        argument=argument,
        search_attributes=TypedSearchAttributes(pairs),
        summary=f"{noun.name} {row.name}",
        name="" if settings().payload_codec == "aes-gcm" else row.name,
    )
