"""Outputs that are committed at a double of Hugging Face's hub, by its own library."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations import huggingface
from activities.artifacts.destinations.huggingface import deliver_huggingface
from activities.settings import settings
from tests.activities.artifacts.destinations.sendings import JOB_ID, sending_of
from tests.doubles.http_double import serving
from tests.doubles.hugging_face_hub import HuggingFaceHub
from workflows.contracts.deliveries import HuggingFaceDestination

# The library itself hands large files to its HTTP client in a way that this one has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TOKEN = "a-token-that-is-made-up"
MARK = f"baseload job {JOB_ID}, attempt 1"
FILES = {"model.bin": b"m" * 3_000_000, "deep/config.json": b"{}", "a.log": b"log", "empty": b""}


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HuggingFaceHub]:
    found = HuggingFaceHub(TOKEN)
    found.add("main", "initial commit", {".gitattributes": b"*.bin filter=lfs\n"})
    with serving(found.blob_answer) as found.blobs, serving(found.answer) as found.url:
        monkeypatch.setenv("BASELOAD_HUGGINGFACE_ENDPOINT", found.url)
        monkeypatch.setenv("HF_TOKEN", "the-hosts-own-token")
        settings.cache_clear()
        yield found
    close_session()


def destination(**changes: str) -> HuggingFaceDestination:
    given = {"type": "huggingface", "repo": "pets/cats", **changes}
    return HuggingFaceDestination.model_validate(given)


def deliver(to: HuggingFaceDestination, sending: Any, token: str = TOKEN) -> str:
    return deliver_huggingface(to, {"token": token}, sending)


def refusal(*given: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        deliver(*given)
    assert TOKEN not in str(caught.value)
    assert "wrong-token" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_an_output_becomes_one_commit(hub: HuggingFaceHub, tmp_path: Path, kind: str) -> None:
    hub.kind = kind
    said: list[int] = []
    to = destination(kind=kind, prefix="runs/7/")
    place = deliver(to, sending_of(FILES, tmp_path / "1", said.append))
    first, made = hub.branches["main"]
    assert place == f"huggingface {kind} pets/cats branch main commit {made.id}"
    assert made.title == MARK
    assert made.files == first.files | {f"runs/7/{name}": FILES[name] for name in FILES}
    assert list(hub.sent.values()) == [FILES["model.bin"]]
    assert (hub.blob_authorizations, said[-1]) == ({""}, len(FILES))


def test_a_branch_that_is_missing_begins_with_the_main_one(
    hub: HuggingFaceHub, tmp_path: Path
) -> None:
    deliver(destination(branch="runs/new"), sending_of(FILES, tmp_path / "1"))
    assert len(hub.branches["main"]) == 1
    assert [each.title for each in hub.branches["runs/new"]] == ["initial commit", MARK]


def test_a_repeat_after_a_lost_reply_finds_the_commit(hub: HuggingFaceHub, tmp_path: Path) -> None:
    hub.faults.lost = [True]
    lost = refusal(destination(), sending_of(FILES, tmp_path / "1"))
    assert lost.type == "Unavailable"
    made = hub.branches["main"][-1]
    for number in range(4):  # On the second page.
        hub.add("main", f"of somebody {number}", {})
    place = deliver(destination(), sending_of(FILES, tmp_path / "2"))
    assert (place.rpartition(" ")[2], len(hub.branches["main"])) == (made.id, 6)
    deliver(destination(), sending_of({"model.bin": b"new"}, tmp_path / "10", attempt=10))
    assert [each.title for each in hub.branches["main"]].count(MARK) == 1
    assert hub.branches["main"][-1].files["model.bin"] == b"new"


def test_a_branch_that_moves_meanwhile_gets_the_commit_on_top(
    hub: HuggingFaceHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("main", "as it will be", {"empty": b""})
    # What was there already when the files were sent is changed meanwhile.
    others = {"b.txt": b"b", "empty": b"not any more"}
    hub.before_commit = lambda: hub.add("main", "of somebody", others)
    deliver(destination(), sending_of(FILES, tmp_path / "1"))
    assert [each.title for each in hub.branches["main"]][2:] == ["of somebody", MARK]
    assert hub.branches["main"][-1].files.items() >= {"b.txt": b"b", **FILES}.items()
    monkeypatch.setattr(huggingface, "MOST_RACES", 1)
    hub.before_commit = lambda: hub.add("main", "of somebody", {})
    late = refusal(destination(), sending_of({"x": b"x"}, tmp_path / "2", attempt=2))
    assert late.type == "Unavailable"


def test_files_that_are_there_already_need_no_commit(hub: HuggingFaceHub, tmp_path: Path) -> None:
    made = hub.add("main", "of somebody", FILES)
    place = deliver(destination(), sending_of(FILES, tmp_path / "1"))
    assert (place.rpartition(" ")[2], hub.branches["main"][-1]) == (made.id, made)


def test_a_token_that_may_not_write_is_refused(hub: HuggingFaceHub, tmp_path: Path) -> None:
    wrong = refusal(destination(), sending_of(FILES, tmp_path / "1"), "wrong-token")
    assert wrong.type == "Refused"
    other = refusal(destination(repo="pets/birds"), sending_of(FILES, tmp_path / "2"))
    assert other.type == "Refused"
    hub.faults.before = [403, 503]
    assert refusal(destination(), sending_of(FILES, tmp_path / "3")).type == "Refused"
    assert refusal(destination(), sending_of(FILES, tmp_path / "4")).type == "Unavailable"
    assert len(hub.branches["main"]) == 1


@pytest.mark.parametrize("name", [".git/config", "a/.git/hooks/x", "a/../b"])
def test_a_name_that_the_hub_keeps_for_itself_is_refused(
    hub: HuggingFaceHub, tmp_path: Path, name: str
) -> None:
    refused = refusal(destination(), sending_of({name: b"x"}, tmp_path / "1"))
    assert (refused.type, name in str(refused)) == ("Refused", True)


def test_what_would_fill_the_memory_or_the_hub_is_refused(
    hub: HuggingFaceHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = {"README.md": b"c" * (huggingface.MOST_CARD_BYTES + 1)}
    assert "a README.md of at most" in str(refusal(destination(), sending_of(card, tmp_path / "0")))
    monkeypatch.setattr(huggingface, "MOST_SMALL_BYTES", 1000)
    small = {f"{number}.txt": b"s" * 300 for number in range(4)}
    refused = refusal(destination(), sending_of(small, tmp_path / "1"))
    assert (refused.type, "pack them" in str(refused)) == ("Refused", True)
    monkeypatch.setattr(huggingface, "MOST_FILES", 3)
    assert "at most 3 files" in str(refusal(destination(), sending_of(small, tmp_path / "2")))


def test_an_attempt_that_another_one_has_followed_commits_nothing(
    hub: HuggingFaceHub, tmp_path: Path
) -> None:
    def stale(done: int) -> None:
        if done:
            raise ApplicationError("another attempt has begun", type="Unavailable")

    late = refusal(destination(), sending_of(FILES, tmp_path / "1", stale))
    assert ("another attempt" in str(late), len(hub.branches["main"])) == (True, 1)
