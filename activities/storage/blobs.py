"""The object store: whole objects by name, in a local folder or any store that fsspec supports.

An object appears completely or not at all, and is never changed. Calls are synchronous and may wait
for the network, so an event loop calls them through `asyncio.to_thread`.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import fsspec  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from activities.storage.names import place_of
from activities.storage.parts import PREFIX, Parts

CHUNK_BYTES = 1024 * 1024


class BlobMissingError(FileNotFoundError):
    """The error for a name without an object."""


class BlobStore:
    """An object store under one URL, such as `file:///srv/baseload` or `s3://bucket/baseload`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._files, root = fsspec.core.url_to_fs(url, **_options(url))
        self._root = str(root).rstrip("/")
        self.folder = Path(self._root) if isinstance(self._files, LocalFileSystem) else None
        """The local folder of the store; None when the store is not local."""
        local = Parts(self.folder / ".parts") if self.folder else None
        self._parts = local or Parts(Path(tempfile.gettempdir()), ".baseload-part-")

    def put(self, name: str, content: bytes) -> None:
        """Store bytes under a name, replacing an earlier object."""
        with self.writer(name) as file:
            file.write(content)

    def put_new(self, name: str, content: bytes) -> bool:
        """Store bytes under a name that has no object; whether it had none.

        Of several that do so at once, one is first, and the others find its object.
        """
        if self.folder is None:
            try:
                self._files.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            return True
        try:
            with self.writer(name, replaces=False) as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def put_file(self, name: str, path: Path) -> None:
        """Store a file's bytes under a name."""
        with path.open("rb") as source, self.writer(name) as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)

    def take_file(self, name: str, path: Path) -> None:
        """Store a file, which nobody changes any more, under a name; replaces an earlier object.

        On the disk of a local store its bytes are not copied: the file has a second name then.
        """
        if self.folder is None:
            self.put_file(name, path)
            return
        target = self._path(name)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as until_published:
            try:
                part = until_published.enter_context(self._parts.second_name(path))
            except OSError:  # It lies on another disk.
                self.put_file(name, path)
                return
            self._publish(part, target, replaces=True)

    @contextlib.contextmanager
    def writer(self, name: str, *, replaces: bool = True) -> Iterator[IO[bytes]]:
        """A file for the content of an object, which appears if the block ends without an error.

        It can be read as well, to check what was written before it has a name.
        replaces: an earlier object of this name.
        Raises: FileExistsError, when there is one that must not be replaced, in a local store.
        """
        path = self._path(name)
        if self.folder:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._parts.new() as (part, file):
            yield file
            file.flush()
            os.fsync(file.fileno())
            self._publish(part, path, replaces)

    def get(self, name: str) -> bytes:
        """The content of an object.

        Raises: BlobMissingError, when there is no object of this name.
        """
        with self.open(name) as file:
            return file.read()

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` up to `end`, or up to its own end.

        Raises: BlobMissingError, when there is no object of this name.
        """
        try:
            found: bytes = self._files.cat_file(self._path(name), start=start, end=end)
        except FileNotFoundError as error:
            raise BlobMissingError(f"object {name}: not in the store at {self.url}") from error
        return found

    def get_all(self, names: Iterable[str]) -> list[bytes]:
        """The contents of objects, at once where the store can.

        Raises: BlobMissingError, when there is no object of one of these names.
        """
        paths = [self._path(name) for name in names]
        try:
            return list(self._files.cat_ranges(paths, 0, None, on_error="raise"))
        except FileNotFoundError as error:
            raise BlobMissingError(f"one of {paths}: not in the store at {self.url}") from error

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """An object as a file to read.

        Raises: BlobMissingError, when there is no object of this name.
        """
        try:
            file = cast("IO[bytes]", self._files.open(self._path(name), "rb"))
        except FileNotFoundError as error:
            raise BlobMissingError(f"object {name}: not in the store at {self.url}") from error
        with file:
            yield file

    def stream(self, name: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The content of an object in chunks, from its first byte on.

        Raises: BlobMissingError at the first chunk, when there is no object of this name.
        """
        with self.open(name) as file:
            while chunk := file.read(chunk_bytes):
                yield chunk

    def size(self, name: str) -> int | None:
        """The size of an object in bytes; None when there is none."""
        try:
            return int(self._files.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        return self.size(name) is not None

    def names(self, folder: str) -> list[str]:
        """The sorted names of all objects below a folder; empty when there is no such folder."""
        found = self._files.find(self._path(folder))
        inside = [str(path)[len(self._root) :].lstrip("/") for path in found]
        return sorted(name for name in inside if not PurePosixPath(name).name.startswith(PREFIX))

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes of all objects below a folder, by their names."""
        found = self._files.find(self._path(folder), detail=True)
        inside = {str(path)[len(self._root) :].lstrip("/"): said for path, said in found.items()}
        return {
            name: int(said["size"])
            for name, said in inside.items()
            if not PurePosixPath(name).name.startswith(PREFIX)
        }

    def delete(self, name: str) -> None:
        """Remove one object; silent when there is none."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove objects, at once where the store can; silent about those that are not there.

        Some may be left when others are gone already.
        """
        if paths := [self._path(name) for name in names]:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm(paths)

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below a folder; silent when there are none."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self._path(folder), recursive=True)

    def _publish(self, part: Path, path: str, replaces: bool) -> None:
        if self.folder is None:
            self._files.put_file(str(part), path)
            return
        if replaces:
            part.replace(path)
        else:
            Path(path).hardlink_to(part)
        # The rename must also survive a power cut.
        folder = os.open(Path(path).parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, name: str) -> str:
        return f"{self._root}/{place_of(name)}"


@lru_cache(maxsize=8)
def blob_store(url: str) -> BlobStore:
    """The object store at this URL, created once for each process."""
    return BlobStore(url)


def _options(url: str) -> dict[str, Any]:
    # A cached listing would hide what another process has just written.
    return {} if url.startswith(("file:", "/", "memory:")) else {"use_listings_cache": False}
