"""The client of a node: the agent's verbs, streams and files, with failures that workflows know.

No failure is final here: each effect's stub says which failures end the effect and which are
retried (`find_node_again` is retried even after a wrong host key).
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.secrets.login_keys import login_private_key
from activities.secrets.region_keys import openssh, region_private_key, region_public_key
from activities.secrets.sealing import MasterKeyError
from activities.site.answers.reading import (
    Refusal,
    Speaker,
    Value,
    read,
    read_refusal,
    violation,
)
from activities.site.answers.text import plain
from activities.site.answers.verbs import RunStatus, Status
from activities.temporal.heartbeats import set_details
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import (
    AgentBroke,
    AgentRefused,
    HostKeyMismatch,
    LoginRefused,
    NodeUnreachable,
    OutcomeUnknown,
    ProtocolViolation,
    TransportError,
)
from activities.transport.ssh import NodeConnections, Source
from activities.transport.stream import NodeStream
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress

FAILURES: dict[type[TransportError], str] = {
    NodeUnreachable: errors.NODE_UNREACHABLE,
    LoginRefused: errors.LOGIN_REFUSED,
}
"""The failures that say something about the node and nothing about the request."""

WORK_REFUSALS = {
    "packages": "the packages cannot be installed: check the names and versions in "
    "environment.python_packages and environment.requirements; the log has all that was said",
    "requirements": "the packages cannot be installed: check the file that the field names",
    "apt-not-allowed": "the node cannot install environment.apt_packages for one job alone: use an "
    "environment.image that has them, or take another region",
    "apt-needs-root": "apt packages need a node whose user is root: add it so, or leave out "
    "environment.apt_packages",
    "apt": "the apt packages cannot be installed: check the names in environment.apt_packages",
    "image": "the image cannot be pulled: check environment.image, and that the node can reach "
    "its registry",
    "image-away": "the registry of the image does not answer the node now: check "
    "environment.image, and try again later",
    "packages-away": "the package index does not answer the node now: try again later",
    "bad-egress": "federated_egress of the project is not as it must be: each place is host:port "
    "or CIDR:port",
    "sealed-model": "the sealed model does not open on the node: create the federated job again",
    "disk-full": "the node's disk has no room: free space on the disk, or ask for less in "
    "resources.disk_size_gb",
    "broken-archive": "the upload cannot be read: upload it again as tar.gz",
    "unsafe-archive": "the upload is not safe to unpack: pack the files again, with names and "
    "links that stay inside the archive",
    "archive-too-large": "the upload is too large: leave out what the job does not need",
    "datastore-path": "the folder on the datastore cannot be used: check data.input, data.output "
    "and data.scratch",
    "datastore-refused": "the datastore refuses what the job asks: check its server, and what "
    "baseload datastore show says",
    "hash-mismatch": "the upload arrived damaged: upload it again",
    "broken-content": "a dataset, model or checkpoint of the job cannot be unpacked: make it again",
    "unsafe-content": "a dataset, model or checkpoint of the job is not safe to unpack: make it "
    "again, with names and links that stay inside",
}
"""The agent's refusals that only the job's owner can fix: what each means, and how to fix it."""

REASON_FIRST = frozenset({"packages", "packages-away", "requirements"})
"""The refusals whose own line tells the reason best; lists of jobs show where it begins."""

AWAY = frozenset({"image-away", "packages-away"})
"""The refusals for what another machine does not answer now, which a device waits for."""

ASKED_AGAIN = {"datastore-away": errors.DATASTORE_AWAY, "no-content": errors.CONTENT_MISSING}
"""The agent's refusals for what a job asks again: a datastore that does not answer the node now, a
content that a power cut has taken."""

PASSING = frozenset(
    {
        "tree-alive", "start-failed", "not-removed", "unsettled",
        "damaged-part", "content-moved", "content-busy", "content-cut",
        "datastore-slow", "datastore-moved",
    }
)  # fmt: skip
"""The agent's refusals that a retry may overcome."""

MOST_WORDS = 2000
MOST_PROGRESS = 1000

_open: dict[str, NodeConnections] = {}
"""By the public half of their region's key, so that no region uses those of another one."""


class NodeClient:
    """The client of one node; all clients share the connections of this process.

    on_progress: takes the lines of a verb's progress; None: they go into the heartbeat.
    away: the failure's type when an image registry or a package index does not answer the node.

    Raises: every method ApplicationError, naming the node. Its type is NODE_UNREACHABLE,
    LOGIN_REFUSED or HOST_KEY_MISMATCH when nothing was done; OUTCOME_UNKNOWN after a lost
    connection, a timeout, or a refusal that a retry may overcome; WORK_REFUSED when the job's
    owner can fix the cause of a refusal; NODE_REFUSED when only the node's owner can;
    DATASTORE_AWAY when a datastore does not answer the node now;
    PROTOCOL_VIOLATION when the node has said what our agent never says. Nothing that a node says
    leaves this class but as a value of `answers/`, in plain text, or as the bytes of a file.
    """

    def __init__(
        self,
        node: NodeAddress,
        on_progress: Callable[[str], None] | None = None,
        away: str = errors.WORK_REFUSED,
    ) -> None:
        self._node = node
        self._away = away
        self._on_progress = on_progress or _show_progress
        self._endpoint = NodeEndpoint.of(node)

    async def call(
        self,
        verb: str,
        request: dict[str, Any],
        answer: type[Value],
        *,
        limit_s: float,
        broken: str = errors.OUTCOME_UNKNOWN,
    ) -> Value:
        """Run a verb of the agent and return its answer.

        answer: the model of the verb's answer.
        limit_s: below the activity's own timeout, so that this error, which names the node, wins.
        broken: the failure's type when the agent ends without an answer.
        Raises: ApplicationError.
        """
        by = self.speaker(verb)
        with self._translated_errors(by, broken=broken):
            said = await _connections(self._node).call(
                self._endpoint,
                verb,
                request,
                limit_s=limit_s,
                on_progress=self._on_progress,
            )
        found = read(said, answer, by)
        if isinstance(found, Refusal):
            raise _refused(by, found, self._away)
        return found

    async def run_status(self, name: str, *, limit_s: float) -> RunStatus:
        """The status of the run with this name on the node.

        Raises: ApplicationError.
        """
        answer = await self.call("status", {"run_ids": [name]}, Status, limit_s=limit_s)
        status = answer.runs.get(name)
        if status is None:
            raise violation(self.speaker("status"), f"runs.{name}", "is in the answer", None)
        return status

    def speaker(self, verb: str) -> Speaker:
        """The node, as the one who answers to a verb."""
        return Speaker(self._node.node_id, verb)

    async def feed(
        self, verb: str, request: dict[str, Any], source: Source, *, limit_s: float
    ) -> None:
        """Run a verb that takes bytes, such as `put_input`."""
        with self._translated_errors(self.speaker(verb)):
            await _connections(self._node).feed(
                self._endpoint, verb, request, source, limit_s=limit_s
            )

    @contextlib.asynccontextmanager
    async def stream(
        self,
        verb: str,
        request: dict[str, Any],
        *,
        eof: bool = True,
        loss: str = errors.OUTCOME_UNKNOWN,
    ) -> AsyncGenerator[NodeStream]:
        """Run a verb that answers with bytes, for as long as the block runs.

        Failures of the transport are translated wherever in the block they are raised.
        eof: whether to close the verb's input. `watch` takes further lines and needs False.
        loss: the failure's type when the connection is lost during the stream.
        """
        with self._translated_errors(self.speaker(verb), loss=loss):
            async with await _connections(self._node).stream(
                self._endpoint, verb, request, eof=eof
            ) as stream:
                yield stream

    async def put_file(
        self,
        source: Source,
        remote_path: str,
        *,
        limit_s: float,
        on_bytes: Callable[[int], None],
    ) -> str:
        """Put a file on the node, whole or not at all, and return its path there.

        remote_path: relative ones are under the agent's root.
        on_bytes: called with the number of bytes sent so far.
        """
        with self._translated_errors(self.speaker("put")):
            return await _connections(self._node).put_file(
                self._endpoint, source, remote_path, limit_s=limit_s, on_bytes=on_bytes
            )

    @contextlib.contextmanager
    def _translated_errors(
        self,
        by: Speaker,
        *,
        loss: str = errors.OUTCOME_UNKNOWN,
        broken: str = errors.OUTCOME_UNKNOWN,
    ) -> Generator[None]:
        """Translate a failure of the transport inside the block to the one that workflows know."""
        try:
            yield
        except ProtocolViolation as error:
            raise violation(by, error.field, error.rule, error.found) from error
        except AgentRefused as error:
            refusal = read_refusal(error.said, by)
            if refusal is not None:
                raise _refused(by, refusal) from None
            raise ApplicationError(self._describe(error), type=broken) from error
        except HostKeyMismatch as error:
            raise ApplicationError(
                self._describe(error), {"expected": error.expected}, type=errors.HOST_KEY_MISMATCH
            ) from error
        except AgentBroke as error:
            advice = "(the machine needs python3 of at least 3.8, and disk space)"
            raise ApplicationError(f"{self._describe(error)} {advice}", type=broken) from error
        except TransportError as error:
            kind = loss if isinstance(error, OutcomeUnknown) else FAILURES[type(error)]
            raise ApplicationError(self._describe(error), type=kind) from error

    def _describe(self, error: TransportError) -> str:
        """The message of a failure; all that opened no connection have the same one."""
        message = f"{self._node.node_id}: {plain(str(error), MOST_WORDS)}"
        if not isinstance(error, (NodeUnreachable, HostKeyMismatch)):
            return message
        return f"{message}: no machine with the host key {self._node.minion_id} answers there"


async def close_connections() -> None:
    """Close every connection, once, before the process ends; the runs on the nodes go on."""
    while _open:
        await _open.popitem()[1].close()


def _connections(node: NodeAddress) -> NodeConnections:
    """The connections of this process and its one event loop, with the keys of the node's region.

    Raises: ApplicationError LOGIN_REFUSED, when this process has no such key.
    """
    try:
        public_key = region_public_key(node.region_id)
        if public_key not in _open:
            _open[public_key] = NodeConnections(
                openssh(region_private_key(node.region_id)),
                own_key=partial(login_private_key, node.region_id),
            )
    except MasterKeyError as error:
        raise ApplicationError(f"{node.node_id}: {error}", type=errors.LOGIN_REFUSED) from error
    return _open[public_key]


def _refused(by: Speaker, refusal: Refusal, away: str = errors.WORK_REFUSED) -> ApplicationError:
    """The failure for a refusal of the agent."""
    advice = WORK_REFUSALS.get(refusal.code)
    if advice is not None:
        message = f"{advice}. {by.node_id} says: {refusal.message}"
        if refusal.code in REASON_FIRST:
            message = f"{refusal.message}. On {by.node_id} {advice}"
        kind = away if refusal.code in AWAY else errors.WORK_REFUSED
    else:
        message = f"{by.node_id}: {refusal.message}"
        kind = errors.OUTCOME_UNKNOWN if refusal.code in PASSING else errors.NODE_REFUSED
        kind = ASKED_AGAIN.get(refusal.code, kind)
    return ApplicationError(message, {"code": refusal.code}, type=kind)


def _show_progress(line: str) -> None:
    set_details(plain(line, MOST_PROGRESS))
