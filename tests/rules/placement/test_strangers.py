"""Secrets of jobs do not go to machines of strangers, unless the job says so."""

from typing import Any

import pytest

from tests.rules.placement.cloud_offers import cloud_offer, market
from tests.rules.placement.offers import job, offer
from tests.rules.placement.test_cloud_market import only_refusal, planned, taken
from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs.resources import demand_key, keeps_secrets
from workflows.rules.placement.cloud_market import spec_of

RENTED: dict[str, Any] = {"provider_kind": "runpod"}


def submission(**environment: object) -> JobSubmission:
    return JobSubmission.model_validate(
        {
            "name": "digits",
            "type": "training",
            "resources": {"gpus": "A100:1"},
            "workers": [{"command": "true"}],
            "environment": environment,
        }
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"secrets": {"HF_TOKEN": "hf_token"}},
        {"credentials": ["aws"]},
        {"image": "ghcr.io/acme/train:1", "image_credentials": "docker"},
    ],
)
def test_a_job_with_secrets_or_keys_keeps_them_unless_it_says_otherwise(
    environment: dict[str, object],
) -> None:
    asked = submission(**environment)
    assert keeps_secrets(asked)
    gives = asked.placement.model_copy(update={"untrusted": True})
    given = asked.model_copy(update={"placement": gives})
    assert not keeps_secrets(given)
    assert demand_key(asked, "acc-1") != demand_key(given, "acc-1")


def test_a_job_without_secrets_has_nothing_to_keep() -> None:
    assert not keeps_secrets(submission(variables={"EPOCHS": "3"}))


def test_a_rented_machine_is_refused_for_secrets_and_a_cloud_is_not() -> None:
    wanted = job(gpus=1, has_secrets=True)
    refusal = only_refusal(wanted, cloud_offer(**RENTED))
    assert refusal.code == "untrusted"
    assert "placement.untrusted: true" in refusal.detail
    assert taken(planned([wanted], market(cloud_offer())))
    assert taken(planned([job(gpus=1)], market(cloud_offer(**RENTED))))


def test_a_retained_machine_of_a_stranger_is_refused_for_secrets() -> None:
    wanted, retained = job(gpus=1, has_secrets=True), offer(gpus=1, **RENTED)
    made = planned([wanted], market(), retained)
    (refusal,) = made.refused[0].refusals
    assert (made.assignments, refusal.code) == ((), "untrusted")
    assert planned([job(gpus=1)], market(), retained).assignments


def test_a_machine_that_is_its_image_needs_no_podman() -> None:
    asked = job(gpus=1, needs_image=True).demand
    assert not spec_of(cloud_offer(**RENTED), asked, 60, {}).containers
    assert spec_of(cloud_offer(), asked, 60, {}).containers
