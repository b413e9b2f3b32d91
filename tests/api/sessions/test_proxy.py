"""What of a request a job may see, and what of its answer people may."""

import pytest

from api.problems import Problem
from api.sessions.proxy import Page, request_headers, response_headers
from api.sessions.switchboard import RunPlace
from workflows.contracts.nodes import NodeAddress

NODE = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=22, minion_id="SHA256:x")
PLACE = RunPlace("job-1", "acc-1", "job-1-0-1", NODE, 8888)
BROWSER = Page(PLACE, 8888, "http://job-1.localhost:8701")
PROGRAM = Page(PLACE, 8888, None, "/v1/jobs/job-1/endpoint")


def seen(page: Page, *headers: tuple[str, str]) -> dict[str, str]:
    given = [(name.encode(), value.encode()) for name, value in headers]
    return {name.decode(): value.decode() for name, value in request_headers(given, page)}


def shown(page: Page, *headers: tuple[str, str]) -> dict[str, str]:
    given = [(name.encode(), value.encode()) for name, value in headers]
    return {name.decode(): value.decode() for name, value in response_headers(given, page)}


@pytest.mark.parametrize("page", [BROWSER, PROGRAM])
def test_a_job_sees_no_key_cookie_or_hop_by_hop_header_of_ours(page: Page) -> None:
    found = seen(
        page,
        ("authorization", "Bearer bl_secret"),
        ("cookie", "baseload-page=x; __Host-baseload-page=y"),
        ("connection", "keep-alive, x-named"),
        ("x-named", "1"),
        ("transfer-encoding", "chunked"),
        ("x-baseload-account", "acc-2"),
        ("x-forwarded-for", "10.0.0.1"),
        ("accept", "text/html"),
    )
    assert found["accept"] == "text/html"
    hidden = {"authorization", "cookie", "connection", "x-named", "transfer-encoding",
              "x-baseload-account", "x-forwarded-for"}  # fmt: skip
    assert not hidden & found.keys()


def test_the_jobs_own_token_and_cookies_reach_it_from_its_own_pages_alone() -> None:
    own = (("authorization", "token abc"), ("cookie", "baseload-page=x; theirs=2; more=3"))
    assert seen(BROWSER, *own)["authorization"] == "token abc"
    assert seen(BROWSER, *own)["cookie"] == "theirs=2; more=3"
    assert not {"authorization", "cookie"} & seen(PROGRAM, *own).keys()


def test_an_answer_has_no_cors_and_no_cookie_of_ours_or_for_a_wider_domain() -> None:
    given = (
        ("access-control-allow-origin", "*"),
        ("set-cookie", "own=1; Domain=example.org; HttpOnly"),
        ("strict-transport-security", "max-age=1"),
    )
    found = shown(BROWSER, *given)
    assert found["set-cookie"] == "own=1; HttpOnly"
    assert not {"access-control-allow-origin", "strict-transport-security"} & found.keys()
    assert "set-cookie" not in shown(BROWSER, ("set-cookie", "baseload-page=evil; Path=/"))


@pytest.mark.parametrize("page", [BROWSER, PROGRAM])
def test_an_answer_sends_a_proxy_before_the_api_to_no_file_or_page_of_its_own(page: Page) -> None:
    names = ("X-Accel-Redirect", "X-Sendfile", "X-LIGHTTPD-send-file", "X-Reproxy-URL")
    found = shown(page, *((name, "/metrics") for name in names), ("x-own", "1"))
    assert "/metrics" not in found.values()
    assert found["x-own"] == "1"


def test_an_answer_on_the_apis_own_origin_is_sandboxed_and_sets_no_cookie() -> None:
    given = (("set-cookie", "own=1"), ("content-security-policy", "default-src *"))
    found = shown(PROGRAM, *given)
    assert found == {"content-security-policy": "sandbox; default-src 'none'"}


@pytest.mark.parametrize(
    ("given", "browser", "program"),
    [
        ("/login", "/login", "/v1/jobs/job-1/endpoint/login"),
        ("next", "next", "next"),
        ("http://127.0.0.1:8888/a?b=1", "/a?b=1", "/v1/jobs/job-1/endpoint/a?b=1"),
    ],
)
def test_a_redirect_is_kept_inside(given: str, browser: str, program: str) -> None:
    assert shown(BROWSER, ("location", given))["location"] == browser
    assert shown(PROGRAM, ("location", given))["location"] == program


@pytest.mark.parametrize(
    "given", ["https://evil.example/", "//evil.example/x", "javascript:alert(1)", "/\\evil.example"]
)
def test_a_redirect_to_elsewhere_is_refused(given: str) -> None:
    with pytest.raises(Problem, match="redirects out"):
        shown(BROWSER, ("location", given))
