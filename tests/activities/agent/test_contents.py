"""Contents on a node: taken in by parts, resumed at the byte, checked, unpacked, shown to runs."""

import json
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from activities.agent.contents import store
from activities.agent.folders import Folders
from activities.agent.host import mount_namespace, run_contents, spawn
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.podman import IMAGE
from tests.activities.contents import Cut, cut, link, tar_of
from tests.activities.waiting import wait_for

PART = 4096
RUN, OTHER = "job-ca-0-1", "job-cb-0-1"
FILES = (
    ("empty", b""),
    ("small.txt", b"small"),
    ("folder/large.bin", random.Random(1).randbytes(40_000)),
    ("folder/" + "long" * 60 + ".txt", b"of a long name"),
    ("last", b"z" * 5000),
)


@pytest.fixture
def whole() -> Cut:
    return cut(tar_of(*FILES, link("folder/to", "large.bin")), PART, 6)


class Node:
    """The agent of one node, and what a site asks it."""

    def __init__(self, agent: LocalAgent) -> None:
        self.agent = agent

    def find(self, content: Cut, run: str = RUN, **more: object) -> dict[str, object]:
        asked = {"run_id": run, "owner": "us", "contents": [content.asked], **more}
        found: dict[str, object] = self.agent.call("find_contents", **asked)["contents"][0]
        return found

    def send(
        self, content: Cut, position: int = 0, stream: bytes | None = None, end: int | None = None
    ) -> str | None:
        """Send a content from a byte on; the code of a refusal."""
        manifest = content.manifest.encoded()
        request = {
            "root": str(self.agent.root),
            "sha256": content.sha256,
            "manifest_bytes": len(manifest),
            "position": position,
        }
        rest = (stream or content.stream)[position:end]
        done = subprocess.run(
            self.agent.command("receive_content"),
            input=json.dumps(request).encode() + b"\n" + manifest + rest,
            capture_output=True,
            check=False,
            user=self.agent.user,
        )
        assert done.returncode in (0, 3), done.stderr.decode()
        if not done.returncode:
            return None
        code: str = json.loads(done.stderr.splitlines()[-1])["error"]["code"]
        return code

    def folder(self, content: Cut) -> Path:
        return self.agent.root / "contents" / content.sha256

    def has_all(self, content: Cut) -> bool:
        return all((self.folder(content) / name).read_bytes() == data for name, data in FILES)


@pytest.fixture
def node(agent: LocalAgent) -> Node:
    return Node(agent)


def test_a_content_is_unpacked_once_and_nothing_of_its_parts_stays(node: Node, whole: Cut) -> None:
    assert node.find(whole) == {
        "sha256": whole.sha256,
        "present": False,
        "has_manifest": False,
        "position": 0,
    }
    assert node.send(whole) is None
    assert node.has_all(whole)
    assert (node.folder(whole) / "folder/to").readlink() == Path("large.bin")
    assert (node.folder(whole) / "last").stat().st_mtime == 1_700_000_000
    assert node.find(whole, OTHER)["present"] is True
    assert list((node.agent.root / "contents").glob(".arriving-*")) == []
    note = node.folder(whole).with_suffix(".json")
    wait_for(lambda: json.loads(note.read_text())["durable"], "it survives a power cut")


def test_a_transfer_goes_on_at_the_byte_after_which_it_broke_off(node: Node, whole: Cut) -> None:
    position = 0
    for end in (1000, 1001, PART, PART + 3, 5 * PART - 1, 11 * PART + 600, len(whole.stream)):
        found = node.find(whole)
        assert found["position"] == position
        code = node.send(whole, position, end=end)
        assert code == ("content-cut" if end < len(whole.stream) else None)
        position = end
    assert node.has_all(whole)


def test_a_transfer_from_another_byte_is_refused_and_changes_nothing(
    node: Node, whole: Cut
) -> None:
    node.send(whole, end=6000)
    assert node.send(whole, 5000) == "content-moved"
    assert node.find(whole)["position"] == 6000


def test_a_part_with_a_wrong_byte_is_dropped_alone_and_asked_again(node: Node, whole: Cut) -> None:
    wrong = bytearray(whole.stream)
    wrong[3 * PART + 17] ^= 1
    assert node.send(whole, stream=bytes(wrong)) == "damaged-part"
    assert node.find(whole)["position"] == 3 * PART
    assert node.send(whole, 3 * PART) is None
    assert node.has_all(whole)


def test_a_manifest_that_is_not_the_contents_own_is_refused(node: Node, whole: Cut) -> None:
    other = cut(whole.stream, 2 * PART)
    assert node.send(Cut(whole.stream, other.manifest)) is None
    mixed = type("Mixed", (), {"sha256": whole.sha256, "manifest": other.manifest})()
    mixed.stream = whole.stream
    assert node.send(mixed) == "damaged-part"
    assert not node.folder(whole).exists()


def test_after_a_power_cut_it_goes_on_where_the_disk_follows(node: Node, whole: Cut) -> None:
    """What is noted of another boot counts only as far as it was written to disk."""
    node.send(whole, end=5 * PART + 9)
    arriving = node.agent.root / "contents" / f".arriving-{whole.sha256}"
    state = json.loads((arriving / "unpacked.json").read_text())
    assert state["part"] == 5
    (arriving / "unpacked.json").write_text(json.dumps(state | {"boot_id": "another"}))
    found = node.find(whole)
    assert (found["has_manifest"], found["position"]) == (True, 0)
    assert node.send(whole) is None
    assert node.has_all(whole)


@pytest.mark.parametrize("left", [b"", bytes(PART)])
def test_after_a_power_cut_that_has_left_no_note_no_part_is_trusted(
    node: Node, whole: Cut, left: bytes
) -> None:
    """The names are on disk, and neither the bytes nor what was noted."""
    node.send(whole, end=PART + 9)
    arriving = node.agent.root / "contents" / f".arriving-{whole.sha256}"
    (arriving / "unpacked.json").unlink()
    (arriving / "part-0").write_bytes(left)
    assert node.find(whole)["position"] == 0
    assert node.send(whole) is None
    assert node.has_all(whole)


def test_a_content_that_a_power_cut_may_have_damaged_is_brought_again(
    node: Node, whole: Cut
) -> None:
    assert node.send(whole) is None
    note = node.folder(whole).with_suffix(".json")
    wait_for(lambda: json.loads(note.read_text())["durable"], "it survives a power cut")
    document = json.loads(note.read_text())
    note.write_text(json.dumps(document | {"boot_id": "another"}))
    assert node.find(whole)["present"] is True
    note.write_text(json.dumps(document | {"boot_id": "another", "durable": False}))
    assert node.find(whole) == {
        "sha256": whole.sha256,
        "present": False,
        "has_manifest": False,
        "position": 0,
    }
    assert node.send(whole) is None
    assert node.has_all(whole)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ([("../out", b"x")], "unsafe-content"),
        ([("/etc/out", b"x")], "unsafe-content"),
        ([("a/../../out", b"x")], "unsafe-content"),
        ([link("out", "/etc")], "unsafe-content"),
        ([link("a", "../..")], "unsafe-content"),
        ([link("a", "b"), ("a/x", b"x")], "unsafe-content"),
        ([("d/e/f", b"x"), link("d/e/up", "../.."), link("t", "d/e/up/..")], "unsafe-content"),
        ([link("etc", "/etc/passwd", tarfile.LNKTYPE)], "unsafe-content"),
        ([link("a", "b"), link("c", "a", tarfile.LNKTYPE)], "unsafe-content"),
        ([link("null", "", tarfile.CHRTYPE)], "unsafe-content"),
        ([link("pipe", "", tarfile.FIFOTYPE)], "unsafe-content"),
        ([("a/x", b"x"), ("a", b"x")], "broken-content"),
    ],
)
def test_what_leaves_the_content_or_is_no_file_is_refused_and_nothing_is_kept(
    node: Node, members: list[tarfile.TarInfo | tuple[str, bytes]], code: str
) -> None:
    content = cut(tar_of(("first", b"x"), *members), PART)
    assert node.send(content) == code
    left = [path.name for path in (node.agent.root / "contents").iterdir()]
    assert left == [f"{content.sha256}.lock"]


def test_half_an_archive_is_refused(node: Node) -> None:
    stream = tar_of(("file", b"x" * 9000))
    assert node.send(cut(stream[:6000], PART)) == "broken-content"


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_links_and_times_of_every_format_are_kept(node: Node, kind: int) -> None:
    members: list[tarfile.TarInfo | tuple[str, bytes]] = [
        ("ä/" + "b" * 90 + "/" + "c" * 60, b"1"),
        ("plain", b"2"),
        link("hard", "plain", tarfile.LNKTYPE),
        link("soft", "plain"),
    ]
    content = cut(tar_of(*members, kind=kind), 700)
    assert node.send(content) is None
    folder = node.folder(content)
    assert (folder / members[0][0]).read_bytes() == b"1"  # type: ignore[index]
    assert (folder / "hard").stat().st_ino == (folder / "plain").stat().st_ino
    assert (folder / "soft").readlink() == Path("plain")


def test_the_least_used_goes_for_room_and_nothing_that_an_open_run_needs(node: Node) -> None:
    contents = [cut(tar_of((f"file{number}", b"x" * 100_000)), PART) for number in range(3)]
    for number, each in enumerate(contents[:2]):
        node.find(each, f"job-c{number}-0-1")
        assert node.send(each) is None
    held = sum(
        json.loads(node.folder(each).with_suffix(".json").read_text())["disk_bytes"]
        for each in contents[:2]
    )
    most_bytes = held + (320 << 20)
    with pytest.raises(Refused, match="disk-full"):
        node.find(contents[2], most_bytes=most_bytes)
    node.agent.call("clean", run_ids=["job-c1-0-1"])
    assert node.find(contents[2], most_bytes=most_bytes)["present"] is False
    assert [node.folder(each).exists() for each in contents] == [True, False, False]


def test_two_runs_that_come_at_once_do_not_count_on_the_same_room(node: Node) -> None:
    first, second = (cut(tar_of((f"file{each}", b"x" * 100_000)), PART) for each in range(2))
    most_bytes = (320 << 20) + 150_000
    assert node.find(first, most_bytes=most_bytes)["present"] is False
    with pytest.raises(Refused, match="are reserved for others"):
        node.find(second, OTHER, most_bytes=most_bytes)
    assert node.find(first, most_bytes=most_bytes)["present"] is False, "its own is no other's"
    assert node.send(first) is None
    assert node.find(second, OTHER, most_bytes=most_bytes + 150_000)["present"] is False
    node.agent.call("clean", run_ids=[OTHER])
    node.find(cut(tar_of(("other", b"x" * 99_000)), PART), most_bytes=most_bytes + 150_000)


def test_a_content_without_the_files_of_its_manifest_is_refused(node: Node) -> None:
    content = cut(tar_of(("a", b"1"), ("b", b"2"), link("c", "a")), PART, 4)
    assert node.send(content) == "broken-content"
    assert node.send(cut(tar_of(("a", b"1"), ("b", b"2"), link("c", "a")), PART, 3)) is None


def test_what_was_on_disk_before_says_nothing_of_a_content_that_has_come_anew(
    node: Node, whole: Cut
) -> None:
    """The process that waits for the disk on behalf of an earlier publication ends late."""
    assert node.send(whole) is None
    note = node.folder(whole).with_suffix(".json")
    wait_for(lambda: json.loads(note.read_text())["durable"], "it survives a power cut")
    anew = json.loads(note.read_text()) | {"durable": False, "publication": "another"}
    earlier = json.loads(note.read_text())
    note.write_text(json.dumps(anew))
    late = os.fork()
    if not late:
        store._make_durable(Folders(str(node.agent.root)), str(node.folder(whole)), earlier)
        os.waitpid(-1, 0)
        os._exit(0)
    os.waitpid(late, 0)
    assert json.loads(note.read_text()) == anew


def test_contents_that_nobody_has_used_for_long_are_pruned(node: Node, whole: Cut) -> None:
    node.find(whole)
    assert node.send(whole) is None
    assert node.agent.call("prune", max_age_s=-60)["removed"] == []
    node.agent.call("clean", run_ids=[RUN])
    removed = node.agent.call("prune", max_age_s=-60)["removed"]
    assert f"contents/{whole.sha256}" in removed
    assert not node.folder(whole).exists()


# ── runs ────────────────────────────────────────────────────────────────────────────────────────

OWN = ("datasets", "models/m", "input")
READ = (
    'cat "$BASELOAD_DATASETS/one/small.txt" "$BASELOAD_MODEL/small.txt"'
    ' "$BASELOAD_CHECKPOINTS/best/small.txt" "$BASELOAD_INPUT/small.txt"; echo; '
    'ls "$BASELOAD_DATASETS"'
)
WRITE = (
    '; for d in "$BASELOAD_DATASETS/one" "$BASELOAD_MODEL" "$BASELOAD_INPUT"; do '
    ': > "$d/new" && echo written; done'
)


def contents_of(content: Cut) -> list[dict[str, str]]:
    return [
        {"role": "dataset", "name": "one", "sha256": content.sha256},
        {"role": "model", "name": "m", "sha256": content.sha256},
        {"role": "checkpoint", "name": "best", "sha256": content.sha256},
        {"role": "input", "name": "any", "sha256": content.sha256},
    ]


@pytest.mark.usefixtures("staged_before")
def test_a_run_reads_its_contents_by_its_variables(node: Node, whole: Cut) -> None:
    assert node.send(whole) is None
    node.agent.run(RUN, READ, contents=contents_of(whole))
    assert node.agent.exit_of(RUN)["exit_code"] == 0
    assert node.agent.path(RUN, "log").read_text() == "smallsmallsmallsmall\none\n"


@pytest.mark.usefixtures("staged_before")
def test_a_run_without_its_content_is_refused_at_its_start(node: Node, whole: Cut) -> None:
    node.agent.stage(RUN, READ, contents=contents_of(whole))
    with pytest.raises(Refused, match="no-content"):
        node.agent.call("start", run_id=RUN)


@pytest.mark.usefixtures("staged_before")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives runs accounts: run as root")
def test_contents_are_read_only_and_for_the_account_of_their_run_alone(
    node: Node, whole: Cut
) -> None:
    agent = node.agent
    agent.call("prepare")
    assert node.send(whole) is None
    user = {"user": "baseload-job"}
    agent.run(RUN, READ + WRITE, contents=contents_of(whole), **user)
    assert agent.exit_of(RUN)["exit_code"] != 0
    log = agent.path(RUN, "log").read_text()
    assert log.startswith("smallsmallsmallsmall\none\n")
    assert "written" not in log
    paths = (node.folder(whole), *(agent.path(RUN, each) for each in OWN))
    look = "; ".join(f"ls {path}" for path in paths)
    agent.run(OTHER, f"({look}) 2>&1; true", **user)
    assert agent.exit_of(OTHER)["exit_code"] == 0
    said = agent.path(OTHER, "log").read_text().splitlines()
    assert len(said) == 4
    assert all("Permission denied" in line for line in said)


@pytest.mark.parametrize("left", ["a link", "nothing"])
def test_what_a_command_has_left_at_the_place_of_a_content_leads_its_next_start_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    run, victim = Folders(str(tmp_path / "root")).run(RUN), tmp_path / "victim"
    run.make()
    victim.mkdir()
    spec = {"contents": [{"role": "model", "name": "m", "sha256": "0" * 64}]}
    run_contents.make(run, spec, None)
    place = Path(run.at("models/m"))
    place.rmdir()
    if left == "a link":
        place.symlink_to(victim)
    mounted: list[Path] = []

    def mount(source: str | None, target: str, *_: object) -> None:
        mounted.append(Path(target).resolve(strict=True))

    monkeypatch.setattr(mount_namespace, "mount", mount)
    spawn._show_contents(run, spec, mounts=True)
    assert set(mounted) == {place}
    assert list(victim.iterdir()) == []


@pytest.mark.usefixtures("staged_before")
def test_an_agent_that_is_not_root_shows_contents_by_links(node: Node, whole: Cut) -> None:
    node.agent.become_ordinary()
    assert node.send(whole) is None
    node.agent.run(RUN, READ, contents=contents_of(whole))
    assert node.agent.exit_of(RUN)["exit_code"] == 0
    assert node.agent.path(RUN, "log").read_text() == "smallsmallsmallsmall\none\n"


@pytest.mark.usefixtures("staged_before")
def test_a_container_reads_its_contents_as_volumes(podman_agent: LocalAgent, whole: Cut) -> None:
    node = Node(podman_agent)
    assert node.send(whole) is None
    command = "echo $BASELOAD_MODEL; " + READ.partition("; ls")[0] + WRITE
    staged = spec(command, runtime="podman", contents=contents_of(whole))
    podman_agent.call("stage", run_id=RUN, owned=True, image=IMAGE, spec=staged)
    podman_agent.call("start", run_id=RUN)
    assert podman_agent.exit_of(RUN)["exit_code"] != 0
    log = podman_agent.path(RUN, "log").read_text()
    assert log.startswith("/baseload/models/m\nsmallsmallsmallsmall\n")
    assert "written" not in log
