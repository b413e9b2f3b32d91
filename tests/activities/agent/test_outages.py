"""Words of podman 4.x and pip 23 for a registry or an index that is away, or has nothing."""

import pytest

from activities.agent.host import outages

PODMAN = "Error: initializing source docker://registry.example/shop/x:1: "
PING = PODMAN + "pinging container registry registry.example: "
RETRIED = 'level=warning msg="Failed, retrying in 1s ... (1/3). %s"\n'
GET = PING + 'Get "https://registry.example/v2/": '
NONE = """\
ERROR: Could not find a version that satisfies the requirement shop-504 (from versions: none)
ERROR: No matching distribution found for shop-504
"""
RETRYING = """\
WARNING: Retrying (Retry(total=%d, connect=None, read=None, redirect=None, status=None)) after \
connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object>: \
Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /x/
"""
OS_ERROR = "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='i', "
OF_FILE = "ERROR: Could not install requirement a==1.0 from https://i.test/a.whl because of "


@pytest.mark.parametrize(
    "said",
    [
        GET + "dial tcp: lookup registry.example on 127.0.0.53:53: no such host",
        GET + "dial tcp: lookup registry.example on 127.0.0.53:53: server misbehaving",
        GET + "dial tcp: lookup registry.example: Temporary failure in name resolution",
        GET + "dial tcp 192.0.2.1:443: i/o timeout",
        GET + "dial tcp 192.0.2.1:443: connect: connection refused",
        GET + "read tcp 10.0.0.2:4->192.0.2.1:443: read: connection reset by peer",
        GET + "net/http: TLS handshake timeout",
        GET + "EOF",
        PING + "invalid status code from registry 503 (Service Unavailable)",
        PODMAN + "reading manifest 1 in registry.example/shop/x: received unexpected HTTP status: "
        "502 Bad Gateway",
        PODMAN + "reading manifest 1 in registry.example/shop/x: toomanyrequests: You have reached "
        "your pull rate limit",
        "Error: parsing image configuration: fetching blob: StatusCode: 500, <!DOCTYPE html>",
    ],
)
def test_a_registry_that_does_not_answer_is_away(said: str) -> None:
    assert outages.of_registry(said + "\n"), said
    assert outages.of_registry(RETRIED % said + said), said


@pytest.mark.parametrize(
    "said",
    [
        PODMAN + "reading manifest 1 in registry.example/shop/timed out: manifest unknown",
        PODMAN + "reading manifest 1 in registry.example/shop/x: name unknown: not known",
        PODMAN + "reading manifest 1 in registry.example/x: requested access to the resource is "
        "denied",
        PODMAN + "reading manifest 1 in registry.example/x: unauthorized: authentication required",
        PING + "invalid status code from registry 403 (Forbidden)",
        "Error: writing blob: adding layer: no space left on device",
    ],
)
def test_an_image_that_is_not_there_or_not_permitted_stays_refused(said: str) -> None:
    assert not outages.of_registry(RETRIED % (GET + "dial tcp: i/o timeout") + said), said


@pytest.mark.parametrize(
    "said",
    [
        RETRYING % 1 + RETRYING % 0 + NONE,
        OS_ERROR + "port=443): Max retries exceeded with url: /a-1.0.whl (Caused by "
        "ResponseError('too many 503 error responses'))",
        OS_ERROR + "port=443): Max retries exceeded with url: /a-1.0.whl (Caused by "
        "NewConnectionError('<HTTPSConnection object>: Failed to establish a new connection: "
        "[Errno 111] Connection refused'))",
        OS_ERROR + "port=443): Read timed out.",
        OF_FILE
        + "HTTP error 429 Client Error: Too Many Requests for url: https://i.test/a-1.0.whl",
    ],
)
def test_a_package_index_that_does_not_answer_is_away(said: str) -> None:
    assert outages.of_index(said + "\n"), said


@pytest.mark.parametrize(
    "said",
    [
        "429 Client Error: Too Many Requests for url: https://i.test/404/",
        "429 Client Error:  for url: https://i.test/x/",
        "502 Server Error: Bad Gateway for url: https://i.test/x/",
        "Max retries exceeded (Caused by ResponseError('too many 503 error responses'))",
        "connection error: HTTPSConnectionPool(host='i.test', port=443): Read timed out.",
    ],
)
def test_a_page_of_a_package_index_that_may_come_later_says_that_the_index_is_away(
    said: str,
) -> None:
    page = "  Could not fetch URL https://i.test/simple/x/: %s - skipping\n"
    absent = page % "404 Client Error: Not Found for url: https://i.test/simple/x/"
    assert outages.may_hide_index(NONE)
    assert outages.of_pages(absent + page % said + NONE), said
    assert not outages.of_pages(absent + NONE)
    assert not outages.of_pages(
        page % "403 Client Error: Forbidden for url: https://i.test/simple/x/"
    )


@pytest.mark.parametrize(
    "said",
    [
        NONE,
        RETRYING % 2 + NONE,
        OF_FILE + "HTTP error 404 Client Error: Not Found for url: https://i.test/a-1.0.whl",
        "error: subprocess-exited-with-error\nERROR: Could not build wheels for numpy-500",
    ],
)
def test_packages_that_are_not_there_stay_refused(said: str) -> None:
    assert not outages.of_index(said + "\n"), said
