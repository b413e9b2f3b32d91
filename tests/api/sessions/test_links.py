"""Links and cookies to the pages of jobs: of one job, of one kind, for a while."""

import time

import pytest

from api.sessions import links

pytestmark = pytest.mark.usefixtures("stores")


def test_a_link_is_of_its_job_and_is_no_cookie_and_no_longer_good_than_it_says() -> None:
    text, until = links.new_link("key-1", "acc-1", "job-1", 0)
    assert until <= time.time() + links.LINK_S + 1
    found = links.opened(text, "link", "job-1")
    assert found is not None
    assert (found.key_id, found.account_id) == ("key-1", "acc-1")
    assert links.opened(text, "link", "job-2") is None
    assert links.opened(text, "cookie", "job-1") is None
    assert links.opened(text[:-4] + "AAAA", "link", "job-1") is None
    assert links.opened("what is no link", "link", "job-1") is None
    past = links.seal(links.Pass("key-1", "acc-1", "job-1", 0, int(time.time()) - 1), "link")
    assert links.opened(past, "link", "job-1") is None


def test_a_cookie_holds_no_longer_than_its_key() -> None:
    text, _ = links.new_link("key-1", "acc-1", "job-1", 0)
    found = links.opened(text, "link", "job-1")
    assert found is not None
    cookie, holds_s = links.cookie_of(found, time.time() + 60)
    assert 50 < holds_s <= 60
    assert links.opened(cookie, "cookie", "job-1") is not None
    assert links.cookie_of(found, None)[1] > 3600


def test_a_link_is_good_once() -> None:
    used = links.UsedLinks()
    assert [used.use("a"), used.use("a"), used.use("b")] == [True, False, True]
