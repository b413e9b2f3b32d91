"""Repositories at Hugging Face, in which one commit with an output is made by its own library.

The library is asked to send from objects that are read, not from paths: those it would send by a
protocol of its own (Xet), which knows no limits of time. The hub, which the administrator has set,
says where large files are sent.
"""

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from typing import Any, BinaryIO, cast
from urllib.parse import quote

import httpx2
from huggingface_hub import CommitOperationAdd, HfApi, get_session
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined] # Public, not in its __all__.
    disable_progress_bars,
    hf_raise_for_status,
)

from activities.artifacts.destinations.sending import OutputFile, Sending, name_below
from activities.artifacts.scratch import reserve_room
from activities.artifacts.sources.tar_streams import CHUNK_BYTES, refused, unavailable
from activities.settings import settings
from workflows.contracts.deliveries import HuggingFaceDestination

MOST_FILES = 10_000
MOST_SMALL_BYTES = 256 << 20
"""Small files are in the request of the commit, and so in the memory, several times."""
CARD, MOST_CARD_BYTES = "README.md", 1 << 20
"""The card of a repository, which the library reads whole into memory before it is sent."""
SMALL_BYTES = 10 << 20
"""What is larger is sent apart."""
MOST_PAGES = 4
"""How many pages of the branch's commits, of about 50, are searched for an earlier attempt's."""
MOST_RACES = 5
"""How often the branch may have moved while the files were sent."""
TIMEOUTS_S = (10.0, 300.0, 60.0, 10.0)
"""To connect, between two reads (the hub checks a commit meanwhile), two writes, and for a pool."""
_MOVED = (409, 412)
_TRY_AGAIN = (408, 425, 429, *_MOVED)


def deliver_huggingface(
    destination: HuggingFaceDestination, key: Mapping[str, str], sending: Sending
) -> str:
    """Make one commit with an output on a branch of a repository that is there. Blocking.

    A branch that is missing begins with what `main` has. One that has the commit of an earlier
    attempt stays as it is; where all files are there already, no commit is needed.
    key: the fields of the project's key of the type huggingface.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    if sending.file_count > MOST_FILES:
        raise refused(f"{destination.repo}: takes at most {MOST_FILES} files of one output")
    reserve_room(sending.scratch, sending.size_bytes)
    disable_progress_bars()
    get_session().timeout = TIMEOUTS_S
    repository = _Repository(destination, key["token"])
    kept: list[tuple[str, Path]] = []
    for _ in range(MOST_RACES):
        tip, found = repository.searched(sending.mark)
        if found:
            return f"{repository.place} commit {found}"
        kept = kept or _kept_files(destination, sending)
        # Made anew, because each knows what the branch had when it was sent.
        files = [CommitOperationAdd(name, cast("BinaryIO", _Reread(path))) for name, path in kept]
        repository.send(files)
        sending.tell(sending.file_count)
        if commit := repository.commit(files, sending.mark, tip):
            return f"{repository.place} commit {commit}"
    raise unavailable(f"{repository.place}: others have changed it {MOST_RACES} times meanwhile")


class _Repository:
    """A branch of a repository at the hub."""

    def __init__(self, destination: HuggingFaceDestination, token: str) -> None:
        self._endpoint, self._token = settings().huggingface_endpoint, token
        self._hub = HfApi(endpoint=self._endpoint, token=token)
        self._repo, self._branch = destination.repo, destination.branch
        self._kind = destination.kind
        self.place = f"huggingface {self._kind} {self._repo} branch {self._branch}"

    def searched(self, mark: str) -> tuple[str, str]:
        """The newest commit of the branch, made if missing, and the one with this title, if any."""
        branch = quote(self._branch, safe="")
        url = f"{self._endpoint}/api/{self._kind}s/{self._repo}/commits/{branch}"
        commits: list[dict[str, Any]] = []
        with self._failures():
            try:
                commits = list(self._pages(url))
            except RevisionNotFoundError:
                self._hub.create_branch(
                    self._repo, branch=self._branch, repo_type=self._kind, exist_ok=True
                )
                commits = list(self._pages(url))
        if not commits:
            raise unavailable(f"{self.place}: the hub says no commit of it")
        marked = (str(each.get("id")) for each in commits if each.get("title") == mark)
        return str(commits[0].get("id")), next(marked, "")

    def send(self, files: list[CommitOperationAdd]) -> None:
        """Send large files; those that are sent are skipped. Nothing is ignored by a .gitignore."""
        with self._failures():
            self._hub.preupload_lfs_files(
                self._repo,
                additions=files,
                repo_type=self._kind,
                revision=self._branch,
                gitignore_content="",
                free_memory=False,
                num_threads=1,
            )

    def commit(self, files: list[CommitOperationAdd], mark: str, tip: str) -> str:
        """Commit what was sent on top of a commit; empty: the branch has moved meanwhile."""
        with self._failures():
            try:
                made = self._hub.create_commit(
                    self._repo,
                    files,
                    commit_message=mark,
                    repo_type=self._kind,
                    revision=self._branch,
                    parent_commit=tip,
                    num_threads=1,
                )
            except HfHubHTTPError as error:
                if error.response is not None and error.response.status_code in _MOVED:
                    return ""
                raise
        return str(made.oid)

    def _pages(self, url: str) -> Iterator[dict[str, Any]]:
        """The newest commits, each as the hub says it."""
        headers = {"Authorization": f"Bearer {self._token}"}
        for _ in range(MOST_PAGES):
            page = get_session().get(url, headers=headers)
            hf_raise_for_status(page)
            yield from (each for each in page.json() if isinstance(each, dict))
            url = page.links.get("next", {}).get("url", "")
            if not url.startswith(f"{self._endpoint}/"):  # The token is for the hub alone.
                return

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Says the library's failures in words that have neither its token nor its URLs."""
        try:
            yield
        except (RepositoryNotFoundError, RevisionNotFoundError, GatedRepoError) as error:
            why = f"there is none that the project's key may write: {type(error).__name__}"
            raise refused(f"{self.place}: {why}") from None
        except HfHubHTTPError as error:
            status = 0 if error.response is None else error.response.status_code
            is_final = 400 <= status < 500 and status not in _TRY_AGAIN
            why = f"{self.place}: the hub answers {status}"
            raise (refused if is_final else unavailable)(why) from None
        except HFValidationError as error:
            raise refused(f"{self.place}: {error}") from None
        except (httpx2.HTTPError, OSError, RuntimeError) as error:
            raise unavailable(f"{self.place}: {type(error).__name__}") from None
        except json.JSONDecodeError:
            raise unavailable(f"{self.place}: the hub's answer is no JSON") from None
        except ValueError as error:
            # Of a README.md whose head the hub does not take, or of an answer that is none.
            raise refused(f"{self.place}: {str(error)[:300]}") from None


def _kept_files(destination: HuggingFaceDestination, sending: Sending) -> list[tuple[str, Path]]:
    """The names of an output's files there, and where each lies on disk to be read again."""
    folder, small, found = sending.scratch / "files", 0, []
    folder.mkdir()
    for number, file in enumerate(sending.files(0)):
        small += file.size_bytes if file.size_bytes <= SMALL_BYTES else 0
        if small > MOST_SMALL_BYTES:
            raise refused(
                f"{destination.repo}: takes at most {MOST_SMALL_BYTES} bytes of files that have up "
                f"to {SMALL_BYTES} each; pack them"
            )
        name = name_below(destination.prefix, file.name)
        if name == CARD and file.size_bytes > MOST_CARD_BYTES:
            raise refused(
                f"{destination.repo}: takes a {CARD} of at most {MOST_CARD_BYTES} bytes, found "
                f"{file.size_bytes}"
            )
        try:
            CommitOperationAdd(name, b"")
        except ValueError:
            raise refused(f"{destination.repo}: takes no file of the name {name[:200]!r}") from None
        found.append((name, _kept(file, folder / str(number))))
        sending.tell(0)
    return found


def _kept(file: OutputFile, path: Path) -> Path:
    with path.open("wb") as kept:
        copyfileobj(file.content, kept, CHUNK_BYTES)
    return path


class _Reread(io.BufferedIOBase):
    """A file that is open only while it is read, because an output may have thousands."""

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._at = path, path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._at)
            found = file.read(size)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at
