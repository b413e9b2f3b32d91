"""The copy of a share's folder to a node, whatever the share says that it has."""

from collections.abc import Iterator
from pathlib import Path

from activities.agent.datastores.copying import Copied, Fetching, part_name
from activities.agent.datastores.files import FILE, FOLDER, LINK, Entry, Files, MissingError


class Hostile(Files):
    """A share that says what a test gives: by path, a content, a target or the entries."""

    def __init__(self, folders: dict[str, list[Entry]], targets: dict[str, str]) -> None:
        self.folders, self.targets = folders, targets

    def look(self, path: str) -> Entry:
        raise MissingError("datastore-refused", path)

    def entries(self, path: str) -> Iterator[Entry]:
        yield from self.folders.get(path, [])

    def read(self, path: str, begin: int = 0) -> Iterator[bytes]:
        yield path.encode()[begin:]

    def target(self, path: str) -> str | None:
        return self.targets.get(path)


def fetched(share: Files, target: Path) -> Copied:
    return Fetching(share, str(target), 1 << 20, lambda _: None).run([])


def test_nothing_is_written_through_a_link_that_an_earlier_try_has_left(tmp_path: Path) -> None:
    target, outside = tmp_path / "input.part", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "folder").symlink_to(outside)
    (target / ".baseload-part-file").symlink_to(outside / "written")
    share = Hostile(
        {"": [Entry("folder", FOLDER), Entry("file", FILE, 4)], "folder": [Entry("x", FILE, 8)]},
        {},
    )
    assert fetched(share, target).left_out == 0
    assert list(outside.iterdir()) == []
    assert (target / "folder/x").read_bytes() == b"folder/x"
    assert (target / "file").read_bytes() == b"file"


def test_links_that_lead_out_through_other_links_are_left_out(tmp_path: Path) -> None:
    target = tmp_path / "input.part"
    target.mkdir()
    links = {"p/q/x": "../../t", "p/q/y": "x/../../../etc", "good": "p/file", "bad": ""}
    share = Hostile(
        {
            "": [
                *(Entry(name, FOLDER) for name in ("p", "t")),
                *(Entry(name, LINK) for name in ("good", "bad", "n" * 300)),
            ],
            "p": [Entry("q", FOLDER), Entry("file", FILE, 6)],
            "p/q": [Entry("x", LINK), Entry("y", LINK)],
        },
        {**links, "n" * 300: "p"},
    )
    assert fetched(share, target).left_out == 3
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_symlink()}
    assert found == {"good", "p/q/x"}


def test_a_name_that_was_a_file_becomes_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "input.part"
    target.mkdir()
    (target / "was").write_text("a file")
    share = Hostile({"": [Entry("was", FOLDER)], "was": [Entry("x", FILE, 5)]}, {})
    fetched(share, target)
    assert (target / "was/x").read_bytes() == b"was/x"


def test_what_the_share_has_no_longer_is_not_in_a_copy_that_goes_on(tmp_path: Path) -> None:
    target = tmp_path / "input.part"
    (target / "gone").mkdir(parents=True)
    (target / "gone/x").write_text("x")
    (target / part_name("file", 9, 0)).write_text("of another file")
    share = Hostile({"": [Entry("file", FILE, 4), Entry(part_name("y", 1, 1), FILE, 1)]}, {})
    assert fetched(share, target) == Copied(files=1, bytes=4, left_out=1)
    assert [path.name for path in target.iterdir()] == ["file"]


def test_a_file_goes_on_at_its_byte(tmp_path: Path) -> None:
    target = tmp_path / "input.part"
    target.mkdir()
    (target / part_name("file", 4, 0)).write_text("FI")
    (target / part_name("long", 4, 0)).write_text("too many bytes")
    share = Hostile({"": [Entry("file", FILE, 4), Entry("long", FILE, 4)]}, {})
    assert fetched(share, target).bytes == 8
    assert (target / "file").read_text() == "FIle"
    assert (target / "long").read_text() == "long"
