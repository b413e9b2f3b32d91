"""What the API says of a job that is tried again, and the pause that a person may end."""

from datetime import UTC, datetime, timedelta
from typing import Any

from activities.db import tables
from tests.api.http_server import Person, Site


async def test_a_job_says_which_retry_it_is_in_and_may_be_started_in_the_pause_before_one(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job(safety={"max_retries": 3})
    path = f"/v1/jobs/{job_id}"

    async def says(status: str, **changes: Any) -> tuple[str, int, str | None]:
        site.set(tables.Job, job_id, status=status, **changes)
        job = (await ada.get(path)).json()
        return job["status_label"], job["retries"], job["retry_at"]

    assert await says("running") == ("running", 0, None)
    assert (await ada.post(f"{path}/start")).status_code == 409
    until = datetime.now(UTC) + timedelta(minutes=1)
    label, retries, retry_at = await says("waiting_for_resources", retry_at=until, retries=1)
    assert (label, retries) == ("pausing before retry 1 of 3", 1)
    assert retry_at is not None
    assert datetime.fromisoformat(retry_at) == until
    assert (await ada.post(f"{path}/start")).status_code == 202
    assert (await ada.post(f"{path}/cancel")).status_code == 202
    assert [verb for verb, _ in site.asked_of(job_id)] == ["start", "start_again", "cancel"]
    again = {"retry_at": None, "attempt": 2}
    assert (await says("waiting_for_resources", **again))[
        0
    ] == "waiting for resources: retry 1 of 3"
    assert (await says("running"))[0] == "running: retry 1 of 3"
    assert (await says("finished"))[0] == "finished"
