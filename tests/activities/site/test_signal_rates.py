"""The rates of what one node may report, by a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.site.signal_rates import (
    MOST_OF_RUN_PER_MINUTE,
    MOST_UNKNOWN_PER_MINUTE,
    ReportRates,
    TokenBucket,
)
from workflows.contracts import errors


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_burst_goes_out_at_once_and_the_rest_at_the_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(10, 3, clock)
    assert [round(bucket.delay_s(), 6) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    clock.now_s += 0.3
    assert round(bucket.delay_s(), 6) == 0
    clock.now_s += 3600
    assert [round(bucket.delay_s(), 6) for _ in range(4)] == [0, 0, 0, 0.1]


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60), st.integers(1, 20))
def test_no_span_of_time_sees_more_than_the_burst_and_the_rate(
    pauses: list[float], burst: int
) -> None:
    clock, per_s = Clock(), 2.0
    bucket, turns = TokenBucket(per_s, burst, clock), []
    for pause_s in pauses:
        clock.now_s += pause_s
        turns.append(clock.now_s + bucket.delay_s())
    for first, began_s in enumerate(turns):
        for last in range(first, len(turns)):
            span_s = turns[last] - began_s
            assert last - first + 1 <= burst + per_s * span_s + 1e-6


def test_each_minute_counts_anew() -> None:
    clock = Clock()
    rates = ReportRates("nod-1", clock)
    for _ in range(3):
        for _ in range(MOST_OF_RUN_PER_MINUTE):
            rates.count("job-counted-0-1")
        clock.now_s += 60
    for _ in range(MOST_UNKNOWN_PER_MINUTE):
        rates.count_unknown()
    with pytest.raises(ApplicationError) as broken:
        rates.count_unknown()
    assert broken.value.type == errors.PROTOCOL_VIOLATION


def test_a_node_whose_cpus_each_end_a_job_every_second_breaks_no_rule() -> None:
    clock = Clock()
    rates, bucket = ReportRates("nod-1", clock), TokenBucket(100, 1000, clock)
    for second in range(600):
        for cpu in range(64):
            rates.count(f"job-{second}-{cpu}-1")
            assert bucket.delay_s() == 0
        clock.now_s += 1
