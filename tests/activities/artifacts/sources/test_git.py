"""Git sources, from a repository that git itself serves."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts import git_process as git
from activities.artifacts.sources.git import open_git
from activities.settings import settings
from tests.activities.artifacts.artifact_rows import files_of
from tests.doubles.git_server import GitServer
from workflows.contracts.artifacts import GitSource

MOST_BYTES = 10_000_000


@pytest.fixture
def server(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
    settings.cache_clear()
    with GitServer(tmp_path / "served").serving() as found:
        yield found


def source(server: GitServer, revision: str = "HEAD") -> GitSource:
    """A source over plain HTTP, which the contract does not allow to anybody."""
    secure = GitSource(type="git", url="https://example.test/cats", revision=revision)
    return secure.model_copy(update={"url": server.url})


def files(found: GitSource, scratch: Path, most_bytes: int = MOST_BYTES) -> dict[str, bytes]:
    scratch.mkdir(exist_ok=True)
    opened = open_git(found, scratch, most_bytes)
    return files_of(b"".join(opened.chunks_from(0)))


def test_a_branch_a_tag_and_a_commit_are_packed_without_their_history(
    server: GitServer, tmp_path: Path
) -> None:
    first = server.commit({"a.txt": "first", "deep/b.txt": "b"})
    server.run("tag", "v1")
    server.run("checkout", "--quiet", "-b", "feature/x")
    server.commit({"a.txt": "second"})
    old = {"a.txt": b"first", "deep/b.txt": b"b"}
    assert files(source(server, first), tmp_path / "1") == old
    assert files(source(server, "v1"), tmp_path / "2") == old
    assert files(source(server, "feature/x"), tmp_path / "3") == {**old, "a.txt": b"second"}
    assert files(source(server), tmp_path / "4") == {**old, "a.txt": b"second"}


def test_the_same_commit_is_the_same_stream_from_any_byte(
    server: GitServer, tmp_path: Path
) -> None:
    server.commit({"a.txt": "a" * 5000})
    tars = []
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        opened = open_git(source(server), tmp_path / name, MOST_BYTES)
        tars.append((opened.identity, b"".join(opened.chunks_from(0))))
        assert b"".join(opened.chunks_from(3000)) == tars[0][1][3000:]
    assert tars[0] == tars[1]


def test_what_git_refuses_is_told(server: GitServer, tmp_path: Path) -> None:
    server.commit({"a.txt": "a"})
    with pytest.raises(ApplicationError, match="couldn't find remote ref") as refused:
        files(source(server, "missing"), tmp_path / "1")
    assert refused.value.type == "Refused"


def test_a_redirect_is_not_followed(server: GitServer, tmp_path: Path) -> None:
    server.commit({"a.txt": "a"})
    server.leads_to = "http://127.0.0.1:1"
    with pytest.raises(ApplicationError, match="302"):
        files(source(server), tmp_path / "1")


def test_a_host_without_a_public_address_is_refused(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "")
    settings.cache_clear()
    with pytest.raises(ApplicationError, match="no public address") as refused:
        files(source(server), tmp_path / "1")
    assert refused.value.type == "Refused"


@pytest.mark.parametrize(
    "host",
    ["127.1", "0x7f.0.0.1", "2130706433", "017700000001", "127.0.0.1.", "%6cocalhost", "a%2eb",
     "-a.test", "a_b.test", "a..test", "[::ffff:127.0.0.1]", "[::1%25lo]", "a\\b.test"],
)  # fmt: skip
def test_a_host_that_git_may_read_as_another_one_is_refused(
    server: GitServer, tmp_path: Path, host: str
) -> None:
    url = server.url.replace("127.0.0.1", host)
    odd = source(server).model_copy(update={"url": url})
    with pytest.raises(ApplicationError, match="its host is a name of letters") as refused:
        files(odd, tmp_path / "1")
    assert refused.value.type == "Refused"


def test_every_name_is_connected_at_the_address_that_was_checked(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.commit({"a.txt": "a"})
    monkeypatch.setattr(git, "permitted_address", lambda *_: "127.0.0.1")
    named = source(server).model_copy(
        update={"url": server.url.replace("127.0.0.1", "Cats.Example.Test")}
    )
    assert files(named, tmp_path / "1") == {"a.txt": b"a"}


@pytest.mark.parametrize("version", ["2.37.0", "2.38.2", "2.39.0", "2.9.9", "none"])
def test_a_git_with_known_holes_is_refused_with_what_is_needed(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(git, "run_git", lambda *_, **__: f"git version {version}\n")
    with pytest.raises(ApplicationError, match=r"asked for at least 2\.39\.1, found") as refused:
        files(source(server), tmp_path / "1")
    assert (refused.value.type, version in refused.value.message) == ("Refused", True)


def test_refs_without_end_do_not_fill_the_memory_of_the_worker(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "MEMORY_KIB", 200_000)
    server.endless = b"003f" + b"1" * 40 + b" refs/heads/feature/x\n"
    with pytest.raises(ApplicationError, match="needs more than 200000 KiB of memory") as refused:
        files(source(server), tmp_path / "1")
    assert refused.value.type == "Refused"


def test_of_what_a_server_has_git_say_the_end_is_kept(server: GitServer, tmp_path: Path) -> None:
    said = git._Tail(io.BytesIO(b"x" * 10_000_000 + b"the end"))
    assert said.text() == "x" * (git.MOST_OUTPUT_BYTES - 7) + "the end"


@pytest.mark.parametrize("revision", ["--upload-pack=touch", "-x", "a b", "a:b", "a^{}", ""])
def test_a_revision_is_no_option_and_no_expression(revision: str) -> None:
    with pytest.raises(ValueError, match="revision"):
        GitSource(type="git", url="https://example.test/cats", revision=revision)


@pytest.mark.parametrize(
    "url",
    ["http://example.test/a", "ext::sh -c id", "file:///etc", "git@h:a",
     "https://user:token@example.test/a", "https://token@example.test/a", "https:///a"],
)  # fmt: skip
def test_a_url_is_https_without_a_secret(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        GitSource(type="git", url=url)


def test_what_a_server_has_git_say_has_no_control_characters() -> None:
    words = str(git.git_failure("remote: \x1b]0;owned\x07\x1b[2J\nfatal: not found"))
    assert words.isprintable()
    assert "fatal: not found" in words
