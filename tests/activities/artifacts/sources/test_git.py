"""Git sources, from a repository that git itself serves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

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
