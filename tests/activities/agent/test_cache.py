"""The cache server itself: what it keeps, gives, refuses and lets go."""

import contextlib
import errno
import hashlib
import http.client
import json
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.agent.cache import server
from activities.agent.cache.filling import fill_cache
from activities.agent.cache.index_pages import links_of, page_of
from activities.agent.cache.server import Cache
from activities.agent.cache.store import (
    CODE,
    FILES,
    LEAST_FREE_BYTES,
    PART,
    PARTS,
    PINNED_S,
    CacheStore,
    full_reason,
)
from activities.agent.errors import RefusedError
from activities.agent.host import disk
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.archives import archive, file
from tests.activities.package_index import PackageIndex, serving
from tests.activities.waiting import wait_for
from tests.lab.wheels import write_wheel

SECRET = b"not for any machine"
ROOM = 1000
RUN = "job-c-0-1"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[PackageIndex]:
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder, "tinything", "1.0", "WORDS = 'from the index'\n")
    with serving(folder) as found:
        yield found


@pytest.fixture
def cache(tmp_path: Path, index: PackageIndex) -> Iterator[Cache]:
    (tmp_path / "secret").write_bytes(SECRET)
    store = CacheStore(str(tmp_path / "cache"), 1 << 20)
    store.make()
    with listening(Cache(("127.0.0.1", 0), store, {"index_url": index.url})) as found:
        yield found


@contextlib.contextmanager
def listening(cache: Cache) -> Iterator[Cache]:
    thread = threading.Thread(target=cache.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield cache
    finally:
        cache.shutdown()
        cache.server_close()
        thread.join()


def got(cache: Cache, path: str) -> tuple[int, bytes]:
    """As it stands, whatever is in the path."""
    connection = http.client.HTTPConnection("127.0.0.1", cache.server_port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def address(server: Cache | PackageIndex) -> str:
    return f"127.0.0.1:{server.server_port}"


def only_wheel(index: PackageIndex) -> tuple[str, str]:
    """Its name and hash."""
    (wheel,) = index.folder.iterdir()
    return wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()


def keep(store: CacheStore, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    store.keep(CODE, sha256, [content])
    return sha256


# ── what it gives ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    [
        "/code/../../secret",
        "/code/..%2f..%2fsecret",
        "/code/%2e%2e/%2e%2e/secret",
        "/../secret",
        "//etc/passwd",
        "/files/tinything/../../../secret",
        "/files/tinything/..%2f..%2f..%2fsecret/x",
        "/files/..%2f..%2f/" + "0" * 64 + "/x",
        "/simple/..%2f..%2fsecret/",
        "/simple/",
        "/",
    ],
)
def test_no_path_leads_out_of_the_cache(cache: Cache, path: str) -> None:
    status, content = got(cache, path)
    assert status == 404
    assert SECRET not in content


def test_nothing_can_be_put_there_by_a_machine(cache: Cache) -> None:
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        request = urllib.request.Request(
            f"http://{address(cache)}/code/" + "0" * 64, b"content", method=method
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=20)
        caught.value.close()
        assert caught.value.code == 501
    assert cache.store.size() == 0


def test_who_comes_from_outside_of_the_network_is_not_let_in(cache: Cache) -> None:
    with socket.socket() as connection:
        assert cache.verify_request(connection, ("10.128.0.7", 40000))
        assert not cache.verify_request(connection, ("8.8.8.8", 40000))


def test_a_file_of_a_package_is_fetched_once_however_many_ask(
    cache: Cache, index: PackageIndex
) -> None:
    name, sha256 = only_wheel(index)
    path = f"/files/TinyThing/{sha256}/{name}"
    with ThreadPoolExecutor(8) as machines:
        answers = list(machines.map(lambda _: got(cache, path), range(16)))
    assert {status for status, _ in answers} == {200}
    assert {hashlib.sha256(content).hexdigest() for _, content in answers} == {sha256}
    assert index.files_asked() == [f"/files/{name}"]


def test_a_file_that_is_not_what_its_page_states_is_neither_given_nor_kept(
    cache: Cache, index: PackageIndex
) -> None:
    name, sha256 = only_wheel(index)
    index.lies[name] = b"a trap"
    status, content = got(cache, f"/files/tinything/{sha256}/{name}")
    assert status == 502
    assert b"a trap" not in content
    assert cache.store.size() == 0


@pytest.mark.parametrize("path", ["/simple/tinything/", "/files/tinything/" + "0" * 64 + "/x"])
def test_the_login_of_the_index_is_told_to_nobody(tmp_path: Path, path: str) -> None:
    """An owner's own pip may read an index with a password, and every job reaches the cache."""
    store = CacheStore(str(tmp_path / "cache"), 1 << 20)
    store.make()
    url = "http://owner:hidden-word@127.0.0.1:1/simple"
    with listening(Cache(("127.0.0.1", 0), store, {"index_url": url})) as cache:
        status, content = got(cache, path)
    assert status == 502
    assert b"hidden-word" not in content
    assert b"owner" not in content


def test_a_file_that_no_page_names_is_not_fetched(cache: Cache, index: PackageIndex) -> None:
    name, _ = only_wheel(index)
    assert got(cache, f"/files/tinything/{'0' * 64}/{name}")[0] == 404
    assert index.files_asked() == []
    assert got(cache, "/simple/nothing-of-that-name/")[0] == 404


def test_links_with_a_hash_lead_through_the_cache_and_others_to_the_index() -> None:
    sha256, metadata = "a" * 64, "b" * 64
    page = f"""
        <a href="../../f/one-1%2B2.whl#sha256={sha256}" data-requires-python="&gt;=3.8"
           data-core-metadata="sha256={metadata}">one</a>
        <a href="../../f/two.tar.gz" data-yanked="">two</a>
        <a href="file:///etc/passwd#sha256={sha256}">three</a>
    """
    links = links_of(page, "https://index.example/simple/one/")
    again = links_of(page_of("one", links), "http://10.0.0.2:8710/simple/one/")
    assert [link.url for link in again] == [
        f"http://10.0.0.2:8710/files/one/{sha256}/one-1%2B2.whl",
        "https://index.example/f/two.tar.gz",
        "file:///etc/passwd",
    ]
    assert again[0].filename == "one-1+2.whl"
    assert again[0].metadata_sha256 == metadata
    assert again[0].attributes["data-requires-python"] == ">=3.8"
    assert "data-yanked" in again[1].attributes
    assert links[2].sha256 is None


# ── whom it serves ──────────────────────────────────────────────────────────────────────────────


def idle(cache: Cache, peer: str, count: int, said: bytes = b"") -> list[socket.socket]:
    """Connections of one machine that never send a whole request."""
    made = []
    for _ in range(count):
        connection = socket.create_connection(
            ("127.0.0.1", cache.server_port), timeout=20, source_address=(peer, 0)
        )
        connection.sendall(said)
        made.append(connection)
    return made


def served(cache: Cache, peer: str) -> int:
    """The status that a machine is answered with."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", cache.server_port, timeout=20, source_address=(peer, 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/stats")
        return connection.getresponse().status


def test_idle_connections_keep_no_other_machine_out(cache: Cache) -> None:
    with contextlib.ExitStack() as held:
        for number in range(5):
            for each in idle(cache, f"127.0.1.{number}", 40):
                held.enter_context(each)
        assert served(cache, "127.0.0.2") == 200


def test_a_machine_has_no_more_connections_than_its_part(cache: Cache) -> None:
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(each) for each in idle(cache, "127.0.0.3", 33)]
        assert connections[-1].recv(1) == b""
        connections[0].sendall(b"GET /stats HTTP/1.0\r\n\r\n")
        assert connections[0].recv(12) == b"HTTP/1.0 200"
        for each in connections:
            each.close()
        wait_for(lambda: answers(cache, "127.0.0.3"), "a place that is free again")


def answers(cache: Cache, peer: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return served(cache, peer) == 200
    return False


def test_who_is_slow_to_ask_is_let_go(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.1)
    (asking,) = idle(cache, "127.0.0.4", 1, b"GET /sta")
    with asking:
        assert asking.recv(1) == b""


def test_who_is_slow_to_take_is_let_go(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CacheStore(str(tmp_path / "cache"), 1 << 26)
    store.make()
    size = 1 << 25  # More than the kernel's buffers hold.
    sha256 = keep(store, bytes(size))
    monkeypatch.setattr(server, "IDLE_S", 0.1)
    monkeypatch.setattr(server, "SLOWEST_BYTES_PER_S", 1 << 40)
    with listening(Cache(("127.0.0.1", 0), store, {"index_url": index.url})) as cache:
        (taking,) = idle(cache, "127.0.0.4", 1)
        with taking:
            taking.sendall(f"GET /code/{sha256} HTTP/1.0\r\n\r\n".encode())
            assert taking.recv(12) == b"HTTP/1.0 200"
            wait_for(lambda: not cache.connections.peers(), "the end of the connection")
            assert sum(len(part) for part in iter(lambda: taking.recv(1 << 20), b"")) < size


# ── what it keeps ───────────────────────────────────────────────────────────────────────────────


def test_what_was_asked_for_longest_ago_goes_first(tmp_path: Path) -> None:
    store = CacheStore(str(tmp_path / "cache"), ROOM)
    store.make()
    first, second = keep(store, b"1" * 400), keep(store, b"2" * 400)
    for age, sha256 in enumerate((second, first)):
        os.utime(Path(store.folder, CODE, sha256), (age, age))
    opened = store.open(CODE, second)
    assert opened is not None
    third = keep(store, b"3" * 400)
    with opened:
        assert opened.read() == b"2" * 400
    assert {path.name for path in Path(store.folder, CODE).iterdir()} == {second, third}
    assert store.size() <= ROOM


def test_what_jobs_need_now_stays_and_what_finds_no_room_is_refused_and_noted(
    tmp_path: Path,
) -> None:
    store = CacheStore(str(tmp_path / "cache"), ROOM)
    store.make()
    needed = keep(store, b"n" * 600)
    with pytest.raises(RefusedError, match="room for 400 bytes beside what jobs need") as refused:
        keep(store, b"m" * 500)
    assert refused.value.code == "cache-full"
    assert store.size() == 600
    assert "asked to keep 500 bytes" in str(full_reason(store.folder))
    small = keep(store, b"s" * 300)
    assert full_reason(store.folder) is None
    store.set_used(CODE, needed, PINNED_S + 1)
    keep(store, b"m" * 500)
    assert not store.holds(CODE, needed)
    assert store.holds(CODE, small)


def test_a_disk_that_is_full_refuses_politely_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CacheStore(str(tmp_path / "cache"), ROOM)
    store.make()

    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RefusedError, match="No space left") as refused:
        store.keep(CODE, "0" * 64, chunks())
    assert refused.value.code == "cache-full"
    assert "No space left" in str(full_reason(store.folder))
    assert store.size() == 0
    keep(store, b"old" * 100)
    store.set_used(CODE, hashlib.sha256(b"old" * 100).hexdigest(), PINNED_S + 1)
    monkeypatch.setattr(disk, "free_bytes", lambda _: 0)  # Something else has filled it.
    store.evict()
    assert store.size() == 0


def test_a_cache_on_a_fuller_disk_is_filled_with_what_was_used_last_and_then_done(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each fill would bring again what the one before has let go, for ever."""
    contents = [bytes([number]) * 100 for number in range(8)]
    names = [hashlib.sha256(content).hexdigest() for content in contents]
    for ago_s, (name, content) in enumerate(zip(names, contents, strict=True)):
        cache.store.keep(FILES, name, [content])
        cache.store.set_used(FILES, name, 60.0 * ago_s)
    root = tmp_path / "new"
    root.mkdir()
    new = CacheStore(str(root / "cache"), 1 << 20)
    new.make()
    (root / "cache.json").write_text(json.dumps({"max_bytes": 1 << 20}))
    room = LEAST_FREE_BYTES + 550
    monkeypatch.setattr(disk, "free_bytes", lambda path: room - CacheStore.size(new))
    request = {"root": str(root), "cache": address(cache), "limit_s": 60}
    assert fill_cache(request) == {"files": 5, "bytes": 500, "left_files": 0, "reason": ""}
    assert {name for name in names if new.holds(FILES, name)} == set(names[:5])
    assert fill_cache(request)["files"] == 0


def test_what_is_not_what_it_is_said_to_be_is_not_kept(tmp_path: Path) -> None:
    store = CacheStore(str(tmp_path / "cache"), ROOM)
    store.make()
    refused = {"hash-mismatch": b"another", "too-large": b"x" * (ROOM + 1)}
    for code, content in refused.items():
        with pytest.raises(RefusedError) as caught:
            store.keep(FILES, "0" * 64, [content])
        assert caught.value.code == code
    with pytest.raises(RefusedError):
        store.keep(FILES, "../" + "0" * 61, [b""])
    assert list(Path(store.folder, FILES).iterdir()) == []


def test_what_a_power_cut_has_left_of_a_file_goes_with_the_next_one_that_is_kept(
    tmp_path: Path,
) -> None:
    store = CacheStore(str(tmp_path / "cache"), ROOM)
    store.make()
    left, under_way = (Path(store.folder, PARTS, f"{PART}{name}") for name in ("old", "new"))
    for path in (left, under_way):
        path.write_bytes(b"half")
    os.utime(left, (1, 1))
    keep(store, b"1" * 400)
    assert list(Path(store.folder, PARTS).iterdir()) == [under_way]


# ── what a machine makes of it ──────────────────────────────────────────────────────────────────


def test_code_comes_out_of_the_cache_and_is_had_once(
    agent: LocalAgent, cache: Cache, tmp_path: Path
) -> None:
    path, _ = archive(tmp_path, file("a", b"as uploaded"))
    sha256 = keep(cache.store, path.read_bytes())
    asked = {"sha256": sha256, "cache": address(cache), "max_archive_bytes": 1 << 20}
    assert agent.call("fetch_code", **asked)["found"] == "fetched"
    assert agent.call("fetch_code", **asked)["found"] == "here"
    assert cache.counters.shown()["code_hits"] == 1
    assert (agent.root / "code" / sha256 / "a").read_bytes() == b"as uploaded"


def test_code_that_cannot_be_had_from_the_cache_leaves_nothing(
    agent: LocalAgent, cache: Cache
) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    odd = keep(cache.store, b"whatever")
    Path(cache.store.folder, CODE, odd).write_bytes(b"spoilt")
    asked = {"cache": address(cache), "max_archive_bytes": 1 << 20}
    assert agent.call("fetch_code", sha256="0" * 64, **asked)["found"] == "missing"
    assert agent.call("fetch_code", sha256=odd, **asked)["found"] == "damaged"
    gone = {**asked, "cache": "127.0.0.1:1"}
    assert agent.call("fetch_code", sha256=odd, **gone)["found"] == "unreached"
    left = {path.suffix for path in (agent.root / "code").iterdir()}
    assert left <= {".lock"}


@pytest.mark.parametrize("status", [429, 503])
def test_packages_of_an_index_that_refuses_everybody_for_now_come_once_it_serves_again(
    agent: LocalAgent, index: PackageIndex, status: int
) -> None:
    agent.environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(agent.root.parent),
        "PIP_INDEX_URL": index.url,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
    }
    words = "python3 -c 'import tinything; print(tinything.WORDS)'"
    asked = {"python_packages": ["tinything"], "owned": True, "spec": spec(words)}
    index.refuses_with = status
    with pytest.raises(Refused, match="No matching distribution found for tinything") as caught:
        agent.call("stage", run_id=RUN, **asked)
    assert caught.value.code == "packages-away"
    index.refuses_with = None
    with pytest.raises(Refused, match="No matching distribution found for no-such") as absent:
        agent.call("stage", run_id=RUN, **{**asked, "python_packages": ["no-such"]})
    assert absent.value.code == "packages"
    agent.call("stage", run_id=RUN, **asked)
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_bytes().endswith(b"from the index\n")


@pytest.mark.parametrize("how", ["it lies", "it breaks off", "nobody is there"])
def test_packages_come_from_the_index_itself_where_the_cache_does_not_do(
    agent: LocalAgent, index: PackageIndex, how: str
) -> None:
    agent.environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(agent.root.parent),
        "PIP_INDEX_URL": index.url,
        "PIP_NO_CACHE_DIR": "1",
    }
    name, _ = only_wheel(index)
    with serving(index.folder) as odd:
        odd.lies.update({name: b"a trap"} if how == "it lies" else {})
        odd.cuts_files = how == "it breaks off"
        cache = "127.0.0.1:1" if how == "nobody is there" else address(odd)
        words = "python3 -c 'import tinything; print(tinything.WORDS)'"
        staged = {"python_packages": ["tinything"], "owned": True, "cache": cache}
        agent.call("stage", run_id=RUN, spec=spec(words), **staged)
        assert bool(odd.files_asked()) == (how != "nobody is there")
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_bytes() == b"from the index\n"
