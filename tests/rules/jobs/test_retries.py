"""The pause before a retry: short at first, doubled each time, with an end."""

from itertools import pairwise

import pytest

from workflows.contracts.job_submission import SubmittedSafety
from workflows.rules.jobs.retries import FIRST_PAUSE, LONGEST_PAUSE, pause_before
from workflows.rules.jobs.submission import MAX_RETRIES


@pytest.mark.parametrize(
    ("retry", "pause_s"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300)]
)
def test_the_pause_doubles_up_to_its_limit(retry: int, pause_s: int) -> None:
    assert pause_before(retry).total_seconds() == pause_s


def test_no_retry_that_a_job_may_ask_for_pauses_longer_than_the_limit_or_shorter_than_before() -> (
    None
):
    pauses = [pause_before(retry) for retry in range(1, MAX_RETRIES + 1)]
    assert all(before <= after <= LONGEST_PAUSE for before, after in pairwise(pauses))


def test_what_users_read_of_the_pause_is_what_it_is() -> None:
    said = str(SubmittedSafety.model_fields["max_retries"].description)
    assert f"{FIRST_PAUSE.seconds} s at first" in said
    assert f"at most {LONGEST_PAUSE.seconds // 60} min" in said
