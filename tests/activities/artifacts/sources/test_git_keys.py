"""Git sources that a project's key opens: over SSH from a real sshd, and over HTTP by a token."""

import base64
import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources.git import open_git
from activities.settings import settings
from tests.activities.artifacts.artifact_rows import files_of
from tests.activities.sshd import Sshd
from tests.activities.third_party_keys.keys import HOST_LINE, SECRET
from tests.doubles.git_server import GitServer
from workflows.contracts.artifacts import GitSource

MOST_BYTES = 10_000_000


@pytest.fixture
def server(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
    settings.cache_clear()
    with GitServer(tmp_path / "served").serving() as found:
        found.commit({"a.txt": "first"})
        yield found


@pytest.fixture
def sshd(server: GitServer, tmp_path: Path) -> Iterator[Sshd]:
    found = Sshd(tmp_path / "sshd")
    found.start()
    yield found
    found.stop()


def over_ssh(server: GitServer, sshd: Sshd) -> GitSource:
    path = f"{server.folder}/cats/.git"
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{sshd.port}{path}"
    return GitSource(type="git", url=url, with_key=True)


def host_line(sshd: Sshd, key: Path | None = None) -> str:
    public = (key or sshd.host_keys[0]).with_suffix(".pub").read_text().split()
    return f"[127.0.0.1]:{sshd.port} {public[0]} {public[1]}"


def fetched(source: GitSource, key: dict[str, str] | None, scratch: Path) -> dict[str, bytes]:
    scratch.mkdir()
    found = files_of(b"".join(open_git(source, scratch, MOST_BYTES, key).chunks_from(0)))
    assert {each.name for each in scratch.iterdir()} == {"repository"}, "no file of the key is left"
    return found


def refusal(source: GitSource, key: dict[str, str] | None, scratch: Path) -> ApplicationError:
    scratch.mkdir()
    with pytest.raises(ApplicationError) as caught:
        open_git(source, scratch, MOST_BYTES, key)
    assert not {"git_key", "known_hosts"} & {each.name for each in scratch.iterdir()}
    return caught.value


def test_a_repository_is_fetched_over_ssh_by_the_key(
    server: GitServer, sshd: Sshd, tmp_path: Path
) -> None:
    key = {"private_key": sshd.client_key.read_text(), "known_hosts": host_line(sshd)}
    assert fetched(over_ssh(server, sshd), key, tmp_path / "1") == {"a.txt": b"first"}


def test_a_host_that_nobody_has_vouched_for_is_refused(
    server: GitServer, sshd: Sshd, tmp_path: Path
) -> None:
    private = sshd.client_key.read_text()
    for number, line in enumerate((HOST_LINE, host_line(sshd, sshd.client_key))):
        key = {"private_key": private, "known_hosts": line}
        refused = refusal(over_ssh(server, sshd), key, tmp_path / str(number))
        assert refused.type == "Refused"
        assert "ost key verification failed" in str(refused)


def test_a_key_that_the_server_does_not_take_is_refused(
    server: GitServer, sshd: Sshd, tmp_path: Path
) -> None:
    key = {"private_key": sshd.host_keys[0].read_text(), "known_hosts": host_line(sshd)}
    refused = refusal(over_ssh(server, sshd), key, tmp_path / "1")
    assert (refused.type, "PRIVATE KEY" in str(refused)) == ("Refused", False)
    for number, given in enumerate((None, {"host": "127.0.0.1", "token": SECRET})):
        refused = refusal(over_ssh(server, sshd), given, tmp_path / f"none-{number}")
        assert "needs a private key" in str(refused)


def test_an_address_that_is_not_permitted_is_not_connected_over_ssh_either(
    server: GitServer, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "")
    settings.cache_clear()
    key = {"private_key": sshd.client_key.read_text(), "known_hosts": host_line(sshd)}
    assert "no public address" in str(refusal(over_ssh(server, sshd), key, tmp_path / "1"))


def test_a_token_is_sent_to_its_own_host_alone(server: GitServer, tmp_path: Path) -> None:
    login = base64.b64encode(f"ada:{SECRET}".encode()).decode()
    server.authorization = f"Basic {login}"
    secure = GitSource(type="git", url="https://example.test/cats")
    source = secure.model_copy(update={"url": server.url})  # A source itself has https alone.
    key = {"host": "127.0.0.1", "username": "ada", "token": SECRET}
    assert fetched(source, key, tmp_path / "1") == {"a.txt": b"first"}
    server.asked_with.clear()
    for number, given in enumerate((key | {"host": "example.org"}, None)):
        refused = refusal(source, given, tmp_path / f"none-{number}")
        assert SECRET not in str(refused)
    assert server.asked_with == {""}


@pytest.mark.parametrize(
    "url",
    [
        "ssh://-oProxyCommand=x@host/a",
        "ssh://git@-oProxyCommand=x/a",
        "ssh://git:password@github.com/a",
        "https://git@github.com/a",
        "file:///etc",
        "ssh:///a",
    ],
)
def test_a_url_has_no_password_and_no_option(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        GitSource(type="git", url=url)
