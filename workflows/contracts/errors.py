"""The types of failure that Temporal carries as `ApplicationError.type`, one constant each."""

HOST_KEY_MISMATCH = "HostKeyMismatch"
NODE_UNREACHABLE = "NodeUnreachable"
LOGIN_REFUSED = "LoginRefused"
OUTCOME_UNKNOWN = "OutcomeUnknown"
NODE_REFUSED = "NodeRefused"
WORK_REFUSED = "WorkRefused"
NOT_FOUND = "NotFound"
REFUSED = "Refused"
JOB_ENDED = "JobEnded"
UNAVAILABLE = "Unavailable"
CAPACITY_EXHAUSTED = "CapacityExhausted"
REQUEST_REFUSED = "RequestRefused"
NOT_YET = "NotYet"
PRICE_CAP = "PriceCap"
OUT_OF_TIME = "OutOfTime"
STALE = "Stale"
"""A row is ahead of a command, which a stale workflow run may have sent; nothing was done."""
WORKER_STOPS = "WorkerStops"
NO_SLOT = "NoSlot"
TRANSFER_WAITS = "TransferWaits"
"""All slots of the account for transfers are taken; the workflow waits, and asks again."""
DATASTORE_AWAY = "DatastoreAway"
"""A datastore does not answer a node now; the job waits with that reason, and asks again."""
CONTENT_MISSING = "ContentMissing"
"""A content of a run is not on its node any more, whose power was cut: the run is staged again."""
PROTOCOL_VIOLATION = "ProtocolViolation"
"""A node has said what our agent never says: a bound, a form or a rate is broken."""

LOSSES = frozenset({NODE_UNREACHABLE, OUTCOME_UNKNOWN})
"""Failures that leave a node unreachable and say nothing about its runs: poll, end nothing."""

NON_RETRYABLE = (
    HOST_KEY_MISMATCH, NODE_REFUSED, WORK_REFUSED, NOT_FOUND, REFUSED, PROTOCOL_VIOLATION,
)  # fmt: skip
"""Failures that a retry cannot mend."""

NON_RETRYABLE_AT_PROVIDERS = (*NON_RETRYABLE, CAPACITY_EXHAUSTED, REQUEST_REFUSED)
"""Failures of a provider's API that a retry cannot mend, because the answer would be the same."""
