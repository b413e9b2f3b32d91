"""Tar streams of sources: built of files, opened at any byte, unpacked from gzip."""

import gzip
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources import tar_streams
from activities.artifacts.sources.tar_streams import SourceFile, after, gunzipped, tar_of, tar_size
from tests.activities.artifacts.artifact_rows import files_of

SOME = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0\\", exclude_categories=["Cs"]),
            min_size=1, max_size=150).filter(lambda name: name not in (".", "..")),
    st.binary(max_size=3000),
    max_size=5,
)  # fmt: skip


def source_files(files: dict[str, bytes]) -> list[SourceFile]:
    def read(content: bytes, begin: int) -> Iterator[bytes]:
        for start in range(begin, len(content), 700):
            yield content[start : start + 700]

    return [
        SourceFile(name, len(content), lambda begin, content=content: read(content, begin))  # type: ignore[misc]
        for name, content in files.items()
    ]


@settings(max_examples=60, deadline=None)
@given(SOME, st.integers(0, 2**30))
def test_the_tar_of_files_holds_them_and_is_the_same_from_any_byte(
    files: dict[str, bytes], chance: int
) -> None:
    made = source_files(files)
    tar = b"".join(tar_of(made, 0))
    assert files_of(tar) == files
    assert tar_size(made) == len(tar)
    position = chance % (len(tar) + 1)
    assert b"".join(tar_of(made, position)) == tar[position:]


@pytest.mark.parametrize("said", [1999, 2001])
def test_a_file_of_another_size_than_was_said_is_told(said: int) -> None:
    file = SourceFile("a", said, lambda begin: iter([b"x" * (2000 - begin)]))
    with pytest.raises(ApplicationError) as told:
        list(tar_of([file], 0))
    assert (told.value.type, "a: has" in told.value.message) == ("Unavailable", True)


CONTENT = random.Random(1).randbytes(300_000) + b"z" * 5_000_000
PACKED = {
    "one": gzip.compress(CONTENT),
    "two members": gzip.compress(CONTENT[:1000]) + gzip.compress(CONTENT[1000:]),
    "padded": gzip.compress(CONTENT) + bytes(1000),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("step", [1013, 10_000_000])
def test_gzip_is_unpacked_in_chunks_of_bounded_size(kind: str, step: int) -> None:
    packed = PACKED[kind]
    chunks = list(gunzipped(packed[at : at + step] for at in range(0, len(packed), step)))
    assert b"".join(chunks) == CONTENT
    assert max(map(len, chunks)) <= tar_streams.CHUNK_BYTES


@pytest.mark.parametrize(
    "packed",
    [b"", b"no gzip", PACKED["one"][:-20], PACKED["one"][:50]],
    ids=["empty", "no gzip", "cut at its end", "cut at its begin"],
)
def test_what_is_no_whole_gzip_is_refused(packed: bytes) -> None:
    with pytest.raises(ApplicationError, match="is no whole gzip file") as refused:
        list(gunzipped([packed]))
    assert refused.value.type == "Refused"


@given(st.lists(st.binary(max_size=5), max_size=6), st.integers(0, 30))
def test_what_follows_is_all_but_the_first_bytes(chunks: list[bytes], position: int) -> None:
    assert b"".join(after(chunks, position)) == b"".join(chunks)[position:]


EMPTY = gzip.compress(b"")
NAMED = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 300_000  # A file name that does not end.


@pytest.mark.parametrize(
    "packed",
    [EMPTY * 20_000, NAMED, EMPTY + bytes(300_000), gzip.compress(b"x") * 20_000],
    ids=["empty members", "name", "padding", "tiny members"],
)
def test_gzip_that_takes_more_than_it_packs_is_refused_before_its_end(
    packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_streams, "GZIP_MOST_OVERHEAD_BYTES", 100_000)
    read = 0

    def chunks() -> Iterator[bytes]:
        nonlocal read
        for start in range(0, len(packed), 50_000):
            read += 50_000
            yield packed[start : start + 50_000]

    with pytest.raises(ApplicationError, match="larger than its content") as refused:
        list(gunzipped(chunks()))
    assert refused.value.type == "Refused"
    assert read < 200_000


def test_gzip_in_many_blocks_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_streams, "GZIP_MOST_OVERHEAD_BYTES", 100_000)
    content = random.Random(2).randbytes(2_000_000)
    packed = b"".join(gzip.compress(content[at : at + 500]) for at in range(0, 2_000_000, 500))
    assert b"".join(gunzipped([packed])) == content
