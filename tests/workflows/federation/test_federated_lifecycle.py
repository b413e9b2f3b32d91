"""The life of a federated job in virtual time: verified, isolated, followed, withdrawn, settled."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt
from tests.simulation.engine.engine import Engine, Limits
from tests.workflows.fake_federation import FederatedFacts, Federations
from workflows.contracts.base import Done
from workflows.contracts.errors import WORK_REFUSED
from workflows.contracts.federation import (
    FederatedReport,
    FederatedRequest,
    FederatedStatus,
    PartyWords,
)
from workflows.contracts.lifecycles import FederatedChanges, Record, Recorded
from workflows.contracts.statuses import JobStatus
from workflows.effects.federation import EndFederatedJob
from workflows.federation.federated_lifecycle import (
    END_INTERVAL,
    REVIEW_INTERVAL,
    FederatedLifecycle,
)

ID = "federated/fed-1"
EFFECTS = (
    "review_federation",
    "isolate_model",
    "create_federated_job",
    "end_federated_job",
    "withdraw_model",
)
MINUTE_S = 60.0


class Federation:
    """One federated job, whose parties and job do what a test says."""

    def __init__(self, **request: Any) -> None:
        self.engine = Engine(7, workflows=[FederatedLifecycle], limits=Limits(4096))
        self.world = Federations()
        self.steps: list[Record] = []
        self.calls: list[str] = []
        serve = {name: self._effect(name) for name in EFFECTS}
        self.engine.serve({"record": self._record, **serve})
        given = {
            "federated_id": "fed-1", "account_id": "acc-maker", "name": "reads",
            "consumer_account_id": "acc-clinic", "project_id": "prj-1", "job_id": "job-1",
            **request,
        }  # fmt: skip
        self._request = FederatedRequest.model_validate(given)

    def _effect(self, name: str) -> Callable[[Attempt, Any], Any]:
        def effect(_: Attempt, asked: Any) -> Any:
            self.calls.append(name)
            return getattr(self.world, name)(asked)

        return effect

    def _record(self, _: Attempt, step: Record) -> Recorded:
        self.steps.append(step)
        return Recorded(applied=True)

    @property
    def facts(self) -> FederatedFacts:
        return self.world.federated["fed-1"]

    @property
    def statuses(self) -> list[str]:
        return [step.status for step in self.steps]

    @property
    def events(self) -> list[str]:
        return [str(event.type) for step in self.steps for event in step.events]

    @property
    def reason(self) -> str:
        return self.steps[-1].status_reason or ""

    def begin(self) -> "Federation":
        self.engine.start("FederatedLifecycle", ID, self._request)
        return self

    def wake(self) -> None:
        self.engine.signal(ID, "wake")

    def until(self, status: str, most_s: float = 60 * MINUTE_S) -> None:
        reached = self.engine.play(lambda: status in self.statuses, most_s=most_s)
        assert reached == "until", self.statuses

    def passes(self, seconds: float) -> None:
        self.engine.play(lambda: False, most_s=seconds)

    def ends(self, most_s: float = 60 * MINUTE_S) -> str:
        """Let it come to its end, and return its status."""
        done = self.engine.play(
            lambda: self.engine.describe(ID).status == "completed", most_s=most_s
        )
        assert done == "until", self.statuses
        report: FederatedReport = self.engine.result(ID)
        assert report.status == self.statuses[-1]
        assert not self.facts.is_sealed, "the model is still there"
        return self.statuses[-1]


def test_a_federated_job_is_verified_isolated_run_and_settled() -> None:
    it = Federation().begin()
    it.until("running")
    assert (it.facts.is_sealed, it.facts.jobs_created) == (True, 1)
    it.facts.job = JobStatus.FINISHED
    it.wake()
    assert it.ends(most_s=MINUTE_S) == "settled"
    assert it.statuses == ["verifying", "isolating", "running", "withdrawing", "settled"]
    assert it.reason == "its job is finished"
    assert it.facts.ends == []


def test_what_a_party_does_not_allow_is_refused_before_the_model_is_copied() -> None:
    it = Federation()
    it.facts.refusals = ("account clinic: owns no node", "project reads: is removed")
    assert it.begin().ends() == "refused"
    assert it.reason == "account clinic: owns no node; project reads: is removed"
    assert (it.facts.times_sealed, it.facts.job) == (0, None)


def test_consent_that_goes_while_the_model_is_sealed_creates_no_job() -> None:
    it = Federation()
    sealing = it.world.isolate_model

    def isolate(asked: Any) -> Any:
        it.facts.refusals = ("project reads: no permission",)
        return sealing(asked)

    it.world.isolate_model = isolate  # type: ignore[method-assign]
    assert it.begin().ends() == "refused"
    assert (it.facts.times_sealed, it.facts.job, it.facts.is_sealed) == (1, None, False)


def said(it: Federation) -> tuple[str | None, str | None, str | None]:
    """What both parties, the creator and the consumer read of the end."""
    step = next(step for step in it.steps if step.status in ("refused", "withdrawing"))
    assert isinstance(step.changes, FederatedChanges)
    assert all(event.message == step.status_reason for event in step.events)
    return step.status_reason, step.changes.creator_reason, step.changes.consumer_reason


def test_each_party_reads_the_causes_of_its_own_side_and_events_have_none() -> None:
    it = Federation()
    it.facts.refusals = ("the creator's model is not ready",)
    words = PartyWords(both=it.facts.refusals[0], creator="mod-1: is failed", consumer="not ready")
    it.facts.refused = words
    assert it.begin().ends() == "refused"
    assert said(it) == (words.both, words.creator, words.consumer)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            ApplicationError(
                "the model cannot be read",
                PartyWords(both="the model cannot be read", creator="no object x").model_dump(),
                type=WORK_REFUSED,
                non_retryable=True,
            ),
            ("the model cannot be read", "no object x", None),
        ),
        (
            ApplicationError("/srv/mod-1: is broken", type="OSError", non_retryable=True),
            ("the platform could not seal the model or create its job (OSError)", None, None),
        ),
    ],
    ids=["foreseen", "unforeseen"],
)
def test_why_the_model_cannot_be_sealed_is_for_the_creator_alone(
    failure: ApplicationError, expected: tuple[str | None, ...]
) -> None:
    it = Federation()

    def isolate(_: Any) -> Any:
        raise failure

    it.world.isolate_model = isolate  # type: ignore[method-assign,assignment]
    assert it.begin().ends() == "refused"
    assert said(it) == expected


def test_why_the_job_has_ended_is_for_the_consumer_unless_more_is_shown() -> None:
    it = Federation().begin()
    it.until("running")
    it.facts.job, it.facts.job_reason = JobStatus.FAILED, "node ward-1 is gone"
    it.wake()
    assert it.ends() == "settled"
    assert said(it) == ("its job is failed", None, "its job is failed: node ward-1 is gone")


def test_consent_that_is_withdrawn_ends_the_job_and_takes_the_model_back() -> None:
    it = Federation().begin()
    it.until("running")
    it.facts.refusals = (
        "project reads: the creator has no permission to create federated jobs in it",
    )
    it.wake()
    assert it.ends(most_s=2 * END_INTERVAL.total_seconds()) == "settled"
    assert it.facts.ends == [it.reason]
    assert it.facts.job is JobStatus.CANCELED
    assert "federated.consent-withdrawn" in it.events


def test_a_lost_wake_is_made_up_for_by_the_next_review() -> None:
    it = Federation().begin()
    it.until("running")
    it.facts.job = JobStatus.FAILED
    assert it.ends(most_s=REVIEW_INTERVAL.total_seconds() + MINUTE_S) == "settled"
    assert it.reason == "its job is failed"


def test_a_person_ends_it_before_and_after_its_job_is_created() -> None:
    early = Federation()
    early.facts.end_reason = "canceled for the creator"
    assert early.begin().ends() == "settled"
    assert early.facts.job is None
    late = Federation().begin()
    late.until("running")
    late.facts.end_reason = "canceled for the consumer"
    late.wake()
    assert late.ends() == "settled"
    assert late.reason == "canceled for the consumer"
    assert late.facts.ends == [late.reason]


def test_it_settles_once_all_usage_is_posted_and_the_model_is_gone_before() -> None:
    it = Federation().begin()
    it.until("running")
    it.facts.job, it.facts.is_billed = JobStatus.FINISHED, False
    it.wake()
    it.passes(3 * END_INTERVAL.total_seconds())
    assert (it.statuses[-1], it.facts.is_sealed) == ("withdrawing", False)
    it.facts.is_billed = True
    assert it.ends() == "settled"


def test_a_job_that_takes_long_to_end_is_asked_again() -> None:
    it = Federation().begin()
    it.until("running")
    heard: list[str] = []

    def is_heard(asked: EndFederatedJob) -> Done:
        heard.append(asked.reason)
        return Done()

    it.world.end_federated_job = is_heard  # type: ignore[method-assign]
    it.facts.end_reason = "canceled"
    it.wake()
    it.passes(2.5 * END_INTERVAL.total_seconds())
    assert heard == ["canceled"] * 3
    assert it.statuses[-1] == "withdrawing"


@pytest.mark.parametrize("status", [each for each in FederatedStatus if not each.is_final])
def test_it_goes_on_from_any_status_of_its_row(status: FederatedStatus) -> None:
    it = Federation(resumed_status=status, sequence=4)
    if status in (FederatedStatus.RUNNING, FederatedStatus.WITHDRAWING):
        it.facts.job, it.facts.is_sealed = JobStatus.FINISHED, True
    it.begin()
    if status in (FederatedStatus.RUNNING, FederatedStatus.WITHDRAWING):
        assert it.ends() == "settled"
        assert it.steps[0].sequence == 5
    else:
        it.until("running")
        assert it.facts.jobs_created == 1
