"""Archives that others have packed: refused for what breaks a rule, in bounded memory and time."""

import gzip
import io
import tarfile
import tracemalloc

import pytest

from activities.storage import archives
from activities.storage.archives import (
    ArchiveLimits,
    ArchiveRefusedError,
    FilesRefusedError,
    check_archive,
)
from tests.activities.archives import Change, file, hard_link, packed, special, symlink, zeros

LIMITS = ArchiveLimits(100_000_000, max_files=1000)
MIB = 1 << 20


def check(archive: bytes, limits: ArchiveLimits = LIMITS) -> int:
    return check_archive(io.BytesIO(archive), limits)


def member(name: str, kind: bytes, content: bytes, size: int | None = None) -> bytes:
    """One raw member; a size that differs from its content's is a lie."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def header(kind: bytes, *pairs: tuple[str, str]) -> bytes:
    """A long header, with its pairs of keyword and value."""
    content = b""
    for keyword, value in pairs:
        record = f" {keyword}={value}\n".encode()
        size = len(record) + 1
        while len(str(size)) + len(record) != size:
            size += 1
        content += str(size).encode() + record
    return member("header", kind, content)


def raw(*parts: bytes) -> bytes:
    return gzip.compress(b"".join(parts) + bytes(10_240), 1)


PLAIN_FILE = member("file", tarfile.REGTYPE, b"content")
PAX, GLOBAL = tarfile.XHDTYPE, tarfile.XGLTYPE

REFUSED = {
    "no-archive": b"hello",
    "empty": b"",
    "cut-off": packed(file("a"))[:-20],
    "bad-checksum": packed(file("a"))[:-8] + bytes(8),
    "trailing": gzip.compress(gzip.decompress(packed(file("a"))) + b"x" * 10_240),
    "parent": packed(file("../evil")),
    "absolute": packed(file("/etc/passwd")),
    "device": packed(special("dev", tarfile.CHRTYPE)),
    "pipe": packed(special("pipe", tarfile.FIFOTYPE)),
    "link-out": packed(symlink("a/link", "../../etc")),
    "hard-link-out": packed(hard_link("a", "../etc/passwd")),
    "negative": raw(header(PAX, ("size", "-5")), PLAIN_FILE),
    "long-header": raw(member("x", tarfile.GNUTYPE_LONGNAME, b"a" * 512, 1 << 40)),
    "long-pax-header": raw(member("x", PAX, b"a" * 512, 512 * MIB)),
    "headers-of-headers": raw(header(PAX, ("comment", "x")) * 3000, PLAIN_FILE),
    "global-headers": raw(*(header(GLOBAL, (f"k{i}", "v" * 900)) for i in range(80)), PLAIN_FILE),
    "sparse": raw(member("x", tarfile.GNUTYPE_SPARSE, b"")),
    "sparse-map": raw(header(PAX, ("GNU.sparse.map", "x,y")), PLAIN_FILE),
    "sparse-without-end": raw(
        header(PAX, ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")),
        member("x", tarfile.REGTYPE, b"9" * 100_000),
    ),
    "odd-number": raw(header(PAX, ("GNU.sparse.size", "many")), PLAIN_FILE),
}
FILES_REFUSED = {
    "too-large": raw(member("large", tarfile.REGTYPE, b"", 10**13)),
    "too-many": packed(*(file(f"{number}", b"") for number in range(1001))),
    "behind-a-link": packed(symlink("here", "there"), file("here/file")),
    "replaces-a-link": packed(symlink("here", "there"), file("here")),
    "backslash": packed(file("..\\evil")),
    "deep": packed(file("a/" * 258 + "a")),
    "long-name": packed(file("a" * 5000)),
}


@pytest.mark.parametrize("archive", REFUSED.values(), ids=REFUSED)
def test_what_no_agent_packs_is_refused(archive: bytes) -> None:
    with pytest.raises(ArchiveRefusedError) as caught:
        check(archive)
    assert type(caught.value) is ArchiveRefusedError, "no file of the job is to blame"


@pytest.mark.parametrize("archive", FILES_REFUSED.values(), ids=FILES_REFUSED)
def test_files_that_no_node_would_unpack_are_refused_as_such(archive: bytes) -> None:
    with pytest.raises(FilesRefusedError):
        check(archive)


def test_what_our_agent_packs_passes() -> None:
    links = symlink("a/link", "b"), hard_link("c", "a/b")
    headers = header(GLOBAL, ("comment", "0" * 40)), header(PAX, ("mtime", "1.5"))
    assert check(packed()) == 0
    assert check(packed(file("a/b"), *links, zeros("hole", 20 * MIB))) == 4
    assert check(packed(file("a" * 1000), file("a/" * 256 + "a"))) == 2
    assert check(raw(*headers, PLAIN_FILE)) == 1
    assert check(packed(file("odd\\name")), ArchiveLimits(1000, allows_backslashes=True)) == 1


def peak_bytes(archive: bytes) -> int:
    """The most memory that a check of a refused archive takes."""
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveRefusedError):
            check(archive)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_name_of_very_many_folders_takes_no_memory() -> None:
    assert peak_bytes(packed(symlink("l", "x"), file("a/" * 20_000 + "a"))) < 10 * MIB


def test_all_long_names_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_HEADERS_BYTES", 100_000)
    with pytest.raises(FilesRefusedError, match="100000 bytes together"):
        check(packed(*(file(f"{number}/" + "a" * 3000, b"") for number in range(50))))


def test_an_archive_has_as_many_files_as_it_has_members_but_folders() -> None:
    made = packed(
        special("folder", tarfile.DIRTYPE), file("folder/a"), symlink("l", "folder"),
        hard_link("b", "folder/a"),
    )  # fmt: skip
    assert check_archive(io.BytesIO(made), LIMITS) == 3
    assert check_archive(io.BytesIO(packed()), LIMITS) == 0


@pytest.mark.parametrize(
    ("last", "beyond", "why"),
    [
        ([file("a" * 4096)], [file("a" * 4097)], "names of at most 4096 characters"),
        ([file("a/" * 256 + "a")], [file("a/" * 257 + "a")], "at most 257 folders in each other"),
        ([file(f"{n}", b"") for n in range(1000)], [file("z")] * 1001, "at most 1000 files"),
        (
            [file("a", bytes(60)), file("b", bytes(40))],
            [file("a", bytes(60)), file("b", bytes(41))],
            "unpacks to at most 100 bytes",
        ),
    ],
)
def test_the_last_that_is_within_a_limit_passes_and_the_next_does_not(
    last: list[Change], beyond: list[Change], why: str
) -> None:
    limits = ArchiveLimits(100, 1000) if "bytes" in why else LIMITS
    check(packed(*last), limits)
    with pytest.raises(FilesRefusedError, match=why):
        check(packed(*beyond), limits)


def test_an_archive_may_be_as_large_as_its_files_and_their_headers() -> None:
    assert ArchiveLimits(1000, 10).max_packed_bytes == 1000 + 10 * 4 * 512 + 256 * MIB


@pytest.mark.parametrize(
    ("limit", "kind", "why"),
    [
        ("MAX_HEADER_BYTES", PAX, "a header of"),
        ("MAX_HEADERS_BYTES", PAX, "bytes together"),
        ("MAX_GLOBAL_HEADERS_BYTES", GLOBAL, "global headers of at most"),
    ],
)
def test_headers_have_a_size_each_together_and_for_all_members(
    monkeypatch: pytest.MonkeyPatch, limit: str, kind: bytes, why: str
) -> None:
    made = raw(header(kind, ("comment", "x" * 80)), PLAIN_FILE)
    size = len(f"92 comment={'x' * 80}\n")
    monkeypatch.setattr(archives, limit, size)
    check(made)
    monkeypatch.setattr(archives, limit, size - 1)
    with pytest.raises(ArchiveRefusedError, match=why):
        check(made)


def test_padding_after_the_end_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_REST_BYTES", MIB)
    for size, passes in ((MIB, True), (3 * MIB, False)):
        made = gzip.compress(gzip.decompress(packed(file("a"))) + bytes(size - 64 * 1024), 1)
        if passes:
            check(made)
            continue
        with pytest.raises(ArchiveRefusedError, match="has nothing after its end"):
            check(made)


def test_very_many_files_take_no_memory() -> None:
    many = packed(*(file(f"{number}", b"") for number in range(6000)), file("../evil"))
    with pytest.raises(ArchiveRefusedError, match="lies outside"):
        check(many, ArchiveLimits(1000))
    tracemalloc.start()
    with pytest.raises(ArchiveRefusedError):
        check(many, ArchiveLimits(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * MIB


def test_a_refusal_shows_no_more_of_a_name_than_people_read() -> None:
    with pytest.raises(ArchiveRefusedError) as caught:
        check(packed(file("/" + "a" * 900)))
    assert str(caught.value) == f"'/{'a' * 199}' lies outside the archive"
