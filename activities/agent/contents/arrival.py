"""A content on its way to this node: parts come in, are checked, and are unpacked at once.

<root>/contents/.arriving-<sha256>/
    manifest.json    the parts in order; its hash is the content's
    files/           what is unpacked so far, of checked parts alone
    unpacked.json    how far that is, by the end of a part
    synced.json      the same, as far as it survives a power cut
    part-<number>    a part that is checked, and not unpacked yet
    begun            the part that is coming in

So a transfer goes on at the byte after which it broke off, and no more than a few parts lie beside
the files that they hold. After a power cut it goes on where the disk was last known to follow.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import queue
import threading
from types import TracebackType
from typing import Any

from ..errors import RefusedError
from ..folders import SHA256, Folders, read_json, write_json
from ..host import file_tree, processes
from . import store
from .unpacking import Unpacker

MANIFEST, UNPACKED, SYNCED = "manifest.json", "unpacked.json", "synced.json"
FILES, PART, BEGUN = "files", "part-", "begun"
MOST_PART_BYTES = 64 << 20
MOST_PARTS = 1 << 18
MOST_MANIFEST_BYTES = 32 << 20
WAITING_PARTS = 2
SYNC_BYTES = 4 << 30
"""How much is unpacked at most that a power cut may take."""
READ_BYTES = 1 << 20


class Manifest:
    """The parts of a content, in order."""

    def __init__(self, encoded: bytes) -> None:
        try:
            document = json.loads(encoded.decode())
            parts = [(str(one["sha256"]), int(one["size_bytes"])) for one in document["parts"]]
            self.file_count = int(document["file_count"])
        except (ValueError, TypeError, KeyError) as error:
            raise RefusedError("bad-manifest", "manifest: %r" % error) from error
        if len(parts) > MOST_PARTS or not all(
            SHA256.match(sha256) and 0 < size <= MOST_PART_BYTES for sha256, size in parts
        ):
            raise RefusedError("bad-manifest", "manifest: its parts are none of a content")
        self.parts = parts
        self.size_bytes = sum(size for _, size in parts)

    def begin_of(self, number: int) -> int:
        """The position of a part in the content."""
        return sum(size for _, size in self.parts[:number])

    @property
    def disk_bytes(self) -> int:
        """About what the unpacked content takes."""
        return self.size_bytes + self.file_count * store.BLOCK_BYTES


class Arrival:
    """One content on its way, for whoever holds it (`store.locked`)."""

    def __init__(self, folders: Folders, sha256: str) -> None:
        self.folders, self.sha256 = folders, sha256
        self.folder = store.arriving(folders, sha256)
        self.state: dict[str, Any] = {}
        """What `unpacked.json` has."""
        self.manifest = self._manifest()
        self.number = 0
        """The part that comes in now."""
        self.begun = 0
        """How many bytes of it are here."""
        if self.manifest is not None:
            self._find_position()

    @property
    def position(self) -> int:
        """How many bytes of the content are here; the next byte to come in."""
        return self.manifest.begin_of(self.number) + self.begun if self.manifest else 0

    @property
    def is_whole(self) -> bool:
        return self.manifest is not None and self.number == len(self.manifest.parts)

    def keep_manifest(self, encoded: bytes) -> None:
        """Keep the manifest, unless it is here. Raises: RefusedError `damaged-part`, for another
        one than asked; `bad-manifest`."""
        if self.manifest is not None:
            return
        found = hashlib.sha256(encoded).hexdigest()
        if found != self.sha256:
            raise RefusedError(
                "damaged-part", "manifest: asked for sha256 %s, found %s" % (self.sha256, found)
            )
        self.manifest = Manifest(encoded)
        store.make(self.folders)
        os.makedirs(self._at(FILES), mode=0o700, exist_ok=True)
        part = self._at(MANIFEST + ".part")
        with open(part, "wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, self._at(MANIFEST))
        self._find_position()

    def checked_parts(self) -> list[int]:
        """The numbers of the parts that are checked, and not unpacked yet."""
        return list(range(int(self.state.get("part", 0)), self.number))

    def part(self, number: int) -> str:
        """The file of a checked part."""
        return self._at("%s%d" % (PART, number))

    def begun_file(self) -> str:
        """The file of the part that is coming in."""
        return self._at(BEGUN)

    @property
    def files(self) -> str:
        """The folder of what is unpacked."""
        return self._at(FILES)

    def note(self, number: int, state: dict[str, Any], *, synced: bool) -> None:
        """Note that all parts before `number` are unpacked, and the unpacker's state after them."""
        assert self.manifest is not None
        document = {
            "part": number,
            "bytes": self.manifest.begin_of(number),
            "boot_id": processes.boot_id(),
            "unpacker": state,
        }
        self.state = document
        write_json(self._at(UNPACKED), document, durable=False)
        if synced:
            store.sync(self.folder)
            write_json(self._at(SYNCED), document)

    def _manifest(self) -> Manifest | None:
        try:
            with open(self._at(MANIFEST), "rb") as file:
                encoded = file.read(MOST_MANIFEST_BYTES)
        except FileNotFoundError:
            return None
        is_whole = hashlib.sha256(encoded).hexdigest() == self.sha256
        return Manifest(encoded) if is_whole else None

    def _find_position(self) -> None:
        """Find what is here; after a power cut, what is here for sure."""
        assert self.manifest is not None
        self.state = read_json(self._at(UNPACKED)) or {}
        if self.state.get("boot_id") != processes.boot_id():  # Also where the cut has left no note.
            self._go_back()
        self.number = self._checked_until()
        with contextlib.suppress(FileNotFoundError):
            self.begun = os.stat(self.begun_file()).st_size
        if self.is_whole or self.begun > self.manifest.parts[self.number][1]:
            self.drop_begun()

    def _checked_until(self) -> int:
        """The number of the part after all those that are checked."""
        number = int(self.state.get("part", 0))
        while os.path.exists(self.part(number)):
            number += 1
        return number

    def _go_back(self) -> None:
        """After a power cut: to the last state that the disk follows, with the parts after it that
        are as they should be."""
        assert self.manifest is not None
        before = self._checked_until()
        self.state = read_json(self._at(SYNCED)) or {}
        if not self.state:
            file_tree.remove(self.files)
            os.mkdir(self.files, 0o700)
        number = int(self.state.get("part", 0))
        while os.path.exists(self.part(number)) and self._is_right(number):
            number += 1
        names = [name for name in os.listdir(self.folder) if name.startswith(PART)]
        for name in names:
            if int(name[len(PART) :]) >= number:
                os.unlink(self._at(name))
        if number != before:  # What had begun was another part.
            self.drop_begun()
        document = dict(self.state, boot_id=processes.boot_id())
        write_json(self._at(UNPACKED), document, durable=False)

    def _is_right(self, number: int) -> bool:
        assert self.manifest is not None
        digest = hashlib.sha256()
        with open(self.part(number), "rb") as file:
            for chunk in iter(lambda: file.read(READ_BYTES), b""):
                digest.update(chunk)
        return digest.hexdigest() == self.manifest.parts[number][0]

    def drop_begun(self) -> None:
        """Drop what has come of the part that is coming in."""
        self.begun = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.begun_file())

    def publish(self) -> None:
        """Give the content its name, and drop what was needed to bring it."""
        assert self.manifest is not None
        store.publish(self.folders, self.sha256, self.files, self.manifest.disk_bytes)
        file_tree.remove(self.folder)

    def _at(self, name: str) -> str:
        return os.path.join(self.folder, name)


class Intake:
    """Takes in the bytes of an arrival from its position on: checks each part, unpacks it beside.

    Used as a context, within which `write` takes bytes. Bytes that came before an interruption
    stay. Raises: RefusedError `damaged-part` (the part is dropped), `disk-full`, and those of
    `Unpacker`, after which nothing of the content is kept.
    """

    def __init__(self, arrival: Arrival) -> None:
        assert arrival.manifest is not None
        self._arrival, self._parts = arrival, arrival.manifest.parts
        self._digest = hashlib.sha256()
        self._file: int | None = None
        self._queue: queue.Queue[int | None] = queue.Queue(WAITING_PARTS)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._unpack_all, daemon=True)

    def __enter__(self) -> Intake:  # noqa: PYI034 - Python 3.8 has no Self
        try:
            self._unpacker = Unpacker(self._arrival.files, self._arrival.state.get("unpacker"))
        except OSError as error:  # Somebody has been at the files: begin again.
            store.remove(self._arrival.folders, self._arrival.sha256)
            raise RefusedError(
                "damaged-part", "content: what was here of it: %s" % error
            ) from error
        self._unsynced = 0
        self._thread.start()
        for number in self._arrival.checked_parts():
            self._hand_over(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until what is checked is unpacked; give a whole content its name."""
        self._queue.put(None)
        self._thread.join()
        self._unpacker.close()
        if self._file is not None:
            os.close(self._file)
        if error is None:
            self._check_failure()
            if self._arrival.is_whole:
                self._finish()

    def write(self, chunk: memoryview) -> None:
        """Take in the next bytes. Raises: RefusedError, as the class says."""
        arrival = self._arrival
        while chunk:
            if arrival.is_whole:
                raise RefusedError("damaged-part", "content: more bytes than its parts have")
            size = self._parts[arrival.number][1]
            piece = chunk[: size - arrival.begun]
            self._append(piece)
            chunk = chunk[len(piece) :]
            if arrival.begun == size:
                self._complete()

    def _append(self, piece: memoryview) -> None:
        if self._file is None:
            self._open()
        assert self._file is not None
        try:
            left = piece
            while left:
                written = os.write(self._file, left)
                self._digest.update(left[:written])
                self._arrival.begun += written
                left = left[written:]
        except OSError as error:
            raise _full(error) from error

    def _open(self) -> None:
        """Open the part that is coming in, and read again what is here of it."""
        flags = os.O_RDWR | os.O_CREAT
        self._file = os.open(self._arrival.begun_file(), flags, 0o600)
        self._digest = hashlib.sha256()
        for chunk in iter(lambda: os.read(self._file or 0, READ_BYTES), b""):
            self._digest.update(chunk)

    def _complete(self) -> None:
        arrival = self._arrival
        os.close(self._file or 0)
        self._file = None
        asked, found = self._parts[arrival.number][0], self._digest.hexdigest()
        if found != asked:
            arrival.drop_begun()
            raise RefusedError(
                "damaged-part",
                "part %d of %d: asked for sha256 %s, found %s"
                % (arrival.number + 1, len(self._parts), asked, found),
            )
        os.rename(arrival.begun_file(), arrival.part(arrival.number))
        arrival.number, arrival.begun = arrival.number + 1, 0
        self._hand_over(arrival.number - 1)

    def _hand_over(self, number: int) -> None:
        self._check_failure()
        self._queue.put(number)

    def _check_failure(self) -> None:
        if self._failure is None:
            return
        if isinstance(self._failure, RefusedError):
            store.remove(self._arrival.folders, self._arrival.sha256)
            raise self._failure
        if isinstance(self._failure, OSError):
            raise _full(self._failure) from self._failure
        raise self._failure

    def _unpack_all(self) -> None:
        for number in iter(self._queue.get, None):
            if self._failure is not None:
                continue  # What waits to hand over must not wait for ever.
            try:
                self._unpack(number)
            except BaseException as error:  # noqa: BLE001 - the other thread raises it
                self._failure = error

    def _unpack(self, number: int) -> None:
        path = self._arrival.part(number)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Not closed by hand: where the unpacking fails, its traceback still has slices of it.
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        self._unpacker.feed(memoryview(mapped))
        self._unsynced += size
        is_synced = self._unsynced >= SYNC_BYTES
        self._arrival.note(number + 1, self._unpacker.state, synced=is_synced)
        if is_synced:
            self._unsynced = 0
        os.unlink(path)

    def _finish(self) -> None:
        try:
            assert self._arrival.manifest is not None
            self._unpacker.finish(self._arrival.manifest.file_count)
        except RefusedError:
            store.remove(self._arrival.folders, self._arrival.sha256)
            raise
        self._arrival.publish()


def _full(error: OSError) -> Exception:
    if error.errno == 28:
        return RefusedError("disk-full", "disk of the node: %s" % error)
    return error
