"""Outputs that are pushed to a git server, over HTTP with a token and over SSH from a real sshd."""

import base64
import getpass
import random
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations import git
from activities.artifacts.destinations.git import deliver_git, git_name
from activities.settings import settings
from tests.activities.artifacts.destinations.sendings import JOB_ID, sending_of
from tests.activities.sshd import Sshd
from tests.activities.third_party_keys.keys import SECRET
from tests.doubles.git_server import GitServer
from workflows.contracts.deliveries import GitDestination

MARK = f"baseload job {JOB_ID}, attempt 1"
KEY = {"host": "127.0.0.1", "username": "ada", "token": SECRET}
FILES = {
    "model.bin": random.Random(1).randbytes(3_000_000),
    "deep/a 'b' \"c\" \\d\nö.txt": b"a",
    "empty": b"",
}


@pytest.fixture
def server(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
    settings.cache_clear()
    with GitServer(tmp_path / "served").serving() as found:
        login = base64.b64encode(f"ada:{SECRET}".encode()).decode()
        found.authorization = f"Basic {login}"
        yield found


def destination(server: GitServer, url: str = "", **changes: Any) -> GitDestination:
    found = GitDestination(type="git", url="https://example.test/cats", branch="results")
    return found.model_copy(update={"url": url or server.url, **changes})  # It has https alone.


def names(server: GitServer, commit: str) -> set[str]:
    """The names of all files of a commit."""
    return {
        each for each in server.run("ls-tree", "-rz", "--name-only", commit).split("\0") if each
    }


def content(server: GitServer, commit: str, name: str) -> bytes:
    folder = server.folder / "out"
    folder.mkdir(exist_ok=True)
    server.run("archive", f"--output={folder}/a.tar", commit)
    with tarfile.open(folder / "a.tar") as tar:
        found = tar.extractfile(name)
        assert found is not None
        return found.read()


def refusal(call: Any, *given: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        call(*given)
    assert SECRET not in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)
    return caught.value


def test_an_output_becomes_one_commit_of_a_branch_that_is_made(
    server: GitServer, tmp_path: Path
) -> None:
    sent: list[int] = []
    to = destination(server, prefix="runs/7/")
    place = deliver_git(to, KEY, sending_of(FILES, tmp_path / "1", sent.append))
    commit = server.run("rev-parse", "results")
    assert place == f"{server.url} branch results commit {commit}"
    assert names(server, commit) == {f"runs/7/{name}" for name in FILES}
    for name, bytes_ in FILES.items():
        assert content(server, commit, f"runs/7/{name}") == bytes_
    said = server.run("log", "--format=%an %ae %s", "results")
    assert said == f"baseload baseload@localhost {MARK}"
    assert sent == [0]


@pytest.mark.parametrize("filters", ["true", "false"])
def test_what_a_branch_has_stays_and_files_of_the_same_names_are_replaced(
    server: GitServer, tmp_path: Path, filters: str
) -> None:
    server.run("config", "uploadpack.allowFilter", filters)
    server.run("checkout", "--quiet", "--orphan", "results")
    server.commit({"kept/a.txt": "a", "runs/old": "old", "runs/model.bin": "old", "b.txt": "b"})
    server.commit({".gitmodules": '[submodule "x"]\npath = x\nurl = https://example.test/x\n'})
    before = server.run("rev-parse", "results")
    deliver_git(destination(server, prefix="runs"), KEY, sending_of(FILES, tmp_path / "1"))
    assert server.run("rev-parse", "results^") == before
    assert names(server, "results") == {
        "kept/a.txt", "runs/old", "b.txt", ".gitmodules", *(f"runs/{name}" for name in FILES)
    }  # fmt: skip
    assert content(server, "results", "runs/model.bin") == FILES["model.bin"]
    assert server.run("fsck", "--full", "--strict") == ""


def test_a_repeat_after_a_lost_reply_finds_the_commit(server: GitServer, tmp_path: Path) -> None:
    server.loses_replies = 1
    lost = refusal(deliver_git, destination(server), KEY, sending_of(FILES, tmp_path / "1"))
    assert (lost.type, lost.non_retryable, server.pushes) == ("Unavailable", False, 1)
    commit = server.run("rev-parse", "results")
    server.run("checkout", "--quiet", "results")
    server.commit({"b.txt": "of somebody else"})
    place = deliver_git(destination(server), KEY, sending_of(FILES, tmp_path / "2"))
    assert (place.rpartition(" ")[2], server.pushes) == (commit, 1)
    # Another attempt of the job has another output.
    ten = sending_of({"model.bin": b"ten"}, tmp_path / "10", attempt=10)
    assert deliver_git(destination(server), KEY, ten).rpartition(" ")[2] != commit
    assert server.run("rev-list", "--count", "results") == "3"
    again = sending_of({"model.bin": b"ten"}, tmp_path / "11", attempt=1)
    assert deliver_git(destination(server), KEY, again).rpartition(" ")[2] == commit


def test_a_branch_that_moves_meanwhile_gets_the_commit_on_top(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run("checkout", "--quiet", "--orphan", "results")
    server.commit({"a.txt": "a"})
    server.before_push = lambda: server.commit({"b.txt": "b"})
    deliver_git(destination(server), KEY, sending_of(FILES, tmp_path / "1"))
    assert names(server, "results") == {"a.txt", "b.txt", *FILES}
    monkeypatch.setattr(git, "MOST_RACES", 1)
    server.before_push = lambda: server.commit({"c.txt": "c"})
    late = refusal(deliver_git, destination(server), KEY, sending_of({}, tmp_path / "2", attempt=2))
    assert (late.type, "others have pushed 1 times" in str(late)) == ("Unavailable", True)


def test_an_attempt_that_another_one_has_followed_pushes_nothing(
    server: GitServer, tmp_path: Path
) -> None:
    def stale(_: int) -> None:
        raise ApplicationError("another attempt has begun", type="Unavailable")

    late = refusal(deliver_git, destination(server), KEY, sending_of(FILES, tmp_path / "1", stale))
    assert ("another attempt" in str(late), server.pushes) == (True, 0)


@pytest.mark.parametrize(
    "name",
    [".git/config", "a/.GIT/hooks/pre-commit", ".gitmodules", "a/.GitModules", "GIT~1/config",
     ".git ./x", ".git::$INDEX_ALLOCATION/config", "a\\.git\\config", ".g\u200cit/config",
     "GITMOD~1", "a/GI7EBA~1", "../a", "a//b", "./a"],
    ids=ascii,
)  # fmt: skip
def test_a_name_that_git_keeps_for_itself_is_refused(name: str) -> None:
    refused = refusal(git_name, "", name)
    assert (refused.type, "git" in str(refused)) == ("Refused", True)


def test_names_of_files_alone_are_taken() -> None:
    for name in (".gitignore", ".gitattributes", "git", "a.git", "x/.github/a", "git~x", "a:b"):
        assert git_name("/runs/", name) == f"runs/{name}".encode()


def test_an_output_with_such_a_name_is_not_pushed_at_all(server: GitServer, tmp_path: Path) -> None:
    files = {"model.bin": b"m", "a/.git/config": b"[core]\nhooksPath = x\n"}
    refused = refusal(deliver_git, destination(server), KEY, sending_of(files, tmp_path / "1"))
    assert "'a/.git/config': is a name that git keeps for itself" in str(refused)
    assert (server.pushes, server.run("for-each-ref")) == (0, "")


def test_a_prefix_and_a_branch_lead_nowhere_else(server: GitServer, tmp_path: Path) -> None:
    wrong = ({"prefix": "../x"}, {"prefix": ".git/hooks"}, {"branch": "a..b"}, {"branch": "a.lock"})
    for number, changes in enumerate(wrong):
        sent = sending_of({"a": b"a"}, tmp_path / str(number))
        assert refusal(deliver_git, destination(server, **changes), KEY, sent).type == "Refused"
    assert server.pushes == 0


def test_nothing_of_an_output_or_a_repository_runs(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run("checkout", "--quiet", "--orphan", "results")
    server.commit({".gitattributes": "* filter=evil diff=evil merge=evil text eol=crlf\n"})
    files = {".gitattributes": b"* text eol=crlf ident\n", "a.txt": b"1\n2\r\n$Id$\n"}
    deliver_git(destination(server), KEY, sending_of(files, tmp_path / "1"))
    assert server.run("cat-file", "-s", "results:a.txt") == str(len(files["a.txt"]))


def test_a_key_that_the_server_does_not_take_is_refused(server: GitServer, tmp_path: Path) -> None:
    wrong: tuple[dict[str, str] | None, ...]
    wrong = (KEY | {"token": "another"}, KEY | {"host": "example.test"}, {}, None)
    for number, key in enumerate(wrong):
        sent = sending_of(FILES, tmp_path / str(number))
        refused = refusal(deliver_git, destination(server), key, sent)
        assert (refused.type, "Basic" in str(refused)) == ("Refused", False)
    server.run("config", "http.receivepack", "false")  # The key may read alone.
    sent = sending_of(FILES, tmp_path / "reader")
    assert refusal(deliver_git, destination(server), KEY, sent).type == "Refused"
    assert server.run("for-each-ref") == ""


def test_a_hook_of_the_server_that_declines_is_a_refusal(server: GitServer, tmp_path: Path) -> None:
    hook = server.folder / "cats/.git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho the branch is protected >&2\nexit 1\n")
    hook.chmod(0o755)
    declined = refusal(deliver_git, destination(server), KEY, sending_of(FILES, tmp_path / "1"))
    assert (declined.type, "the branch is protected" in str(declined)) == ("Refused", True)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/a", "http://localhost:1/a", "http://[::1]:1/a"]
)
def test_a_host_without_a_public_address_is_refused(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "")
    settings.cache_clear()
    key = KEY | {"host": url.split("//")[1].rpartition(":")[0].strip("[]")}
    sent = sending_of(FILES, tmp_path / "1")
    refused = refusal(deliver_git, destination(server, url), key, sent)
    assert (refused.type, "no public address" in str(refused)) == ("Refused", True)


def test_a_redirect_is_not_followed(server: GitServer, tmp_path: Path) -> None:
    server.leads_to = "http://127.0.0.1:1"
    led = refusal(deliver_git, destination(server), KEY, sending_of(FILES, tmp_path / "1"))
    assert "302" in str(led)


def test_an_output_is_pushed_over_ssh_by_the_key(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    started = subprocess.Popen

    def noted(words: Any, **options: Any) -> Any:
        commands.append(repr(words))
        return started(words, **options)

    sshd = Sshd(tmp_path / "sshd")
    sshd.start()
    monkeypatch.setattr(subprocess, "Popen", noted)
    try:
        url = f"ssh://{getpass.getuser()}@127.0.0.1:{sshd.port}{server.folder}/cats/.git"
        host = " ".join(sshd.host_keys[0].with_suffix(".pub").read_text().split()[:2])
        key = {
            "private_key": sshd.client_key.read_text(),
            "known_hosts": f"[127.0.0.1]:{sshd.port} {host}",
        }
        to, sent = destination(server, url), sending_of(FILES, tmp_path / "1")
        place = deliver_git(to, key, sent)
        assert not {"git_key", "known_hosts"} & {each.name for each in sent.scratch.iterdir()}
        wrong = key | {"private_key": sshd.host_keys[0].read_text()}
        again = sending_of(FILES, tmp_path / "2", attempt=2)
        assert refusal(deliver_git, to, wrong, again).type == "Refused"
    finally:
        sshd.stop()
    away = refusal(deliver_git, to, key, sending_of(FILES, tmp_path / "3"))
    assert away.type == "Unavailable"
    assert place == f"{url} branch results commit {server.run('rev-parse', 'results')}"
    assert names(server, "results") == set(FILES)
    assert not any("PRIVATE KEY" in each for each in commands)
