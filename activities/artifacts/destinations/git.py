"""Branches of git repositories, to which one commit with an output is pushed.

git packs the files itself (`fast-import`), so nothing of an output or of a repository is ever
unpacked into a work tree, where attributes and hooks could run something.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.sending import OutputFile, Sending, name_below
from activities.artifacts.git_process import (
    COMMIT,
    GitRemote,
    check_version,
    git_remote,
    run_git,
)
from activities.artifacts.scratch import reserve_room
from activities.artifacts.sources.tar_streams import CHUNK_BYTES, refused, unavailable
from workflows.contracts.deliveries import GitDestination

DEPTH = 200
"""How many commits of the branch are searched for the one of an earlier attempt."""
MOST_FILES = 100_000
MOST_FETCHED_BYTES = 4 << 30
"""How much of the branch is fetched: its names, and contents where the server sends these too."""
MOST_RACES = 5
"""How often the branch may have moved while the commit was made."""
AUTHOR = b"baseload <baseload@localhost>"
_THERE, _MADE = "refs/baseload/there", "refs/baseload/made"
_LOCAL = (
    *("-c", "protocol.https.allow=never", "-c", "protocol.http.allow=never"),
    *("-c", "fastimport.unpackLimit=1"),
)
"""Commands that connect nothing, and leave what they pack together."""
_PUSH = (
    *("-c", "advice.pushUpdateRejected=false", "-c", "pack.windowMemory=256m"),
    *("push", "--quiet", "--no-verify", "--no-thin", "--no-recurse-submodules"),
)
_RACES = (
    "fetch first",
    "non-fast-forward",
    "cannot lock ref",
    "failed to update ref",
    "stale info",
)
_REJECTED = "rejected]"
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""What a file system of Apple leaves out of a name."""
_OWN = re.compile(
    r"\.git|git~[0-9]+|\.gitmodules|gitmod~[0-9]+|gi7eba~[0-9]+|gi7eb[0-9a-f]+~[0-9]+"
)
"""The repository and its list of submodules, also by the short names that Windows gives them."""


def deliver_git(
    destination: GitDestination, key: Mapping[str, str] | None, sending: Sending
) -> str:
    """Push one commit with the files of an output onto a branch, made if missing. Blocking.

    A branch that has the commit of an earlier attempt stays as it is. One that is made has the
    files of the output alone.
    key: the fields of the project's key of the type git.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    place = f"{destination.url} branch {destination.branch}"
    _check_key(destination.url, key)
    check_version(sending.scratch)
    reserve_room(sending.scratch, sending.size_bytes)
    made = _Commit(destination, sending)
    with git_remote(destination.url, key, sending.scratch) as remote:
        for _ in range(MOST_RACES):
            tip = made.fetched(remote)
            if tip and (found := made.found(tip)):
                return f"{place} commit {found}"
            commit = made.on_top_of(tip)
            sending.tell(0)  # An attempt that another one has followed pushes nothing.
            if made.is_pushed(remote, commit):
                return f"{place} commit {commit}"
    raise unavailable(f"{place}: others have pushed {MOST_RACES} times while the commit was made")


def _check_key(url: str, key: Mapping[str, str] | None) -> None:
    """Raises: ApplicationError `Refused`, when no key can open a URL of HTTPS."""
    parts, given = urlsplit(url), key or {}
    if parts.scheme != "ssh" and ("token" not in given or given.get("host") != parts.hostname):
        found = f"one for {given['host']}" if "token" in given else "none"
        raise refused(
            f"{url}: asked for a token for {parts.hostname} in the project's key of the type git, "
            f"found {found}"
        )


class _Commit:
    """The commit of one attempt, in a bare repository in its scratch folder."""

    def __init__(self, destination: GitDestination, sending: Sending) -> None:
        self._destination, self._sending = destination, sending
        self._folder, self._marks = sending.scratch / "repository", sending.scratch / "marks"
        self._ref = f"refs/heads/{destination.branch}"
        self._names: list[bytes] | None = None
        """The quoted names of the files that are packed, by their marks; None: none is yet."""
        run_git(("init", "--quiet", "--bare", str(self._folder)), sending.scratch)
        try:
            self._git("check-ref-format", self._ref)
        except ApplicationError as error:
            raise refused(f"{destination.branch}: git takes it for no name of a branch") from error

    def fetched(self, remote: GitRemote) -> str:
        """The newest commit of the branch; empty: there is no such branch."""
        asked = ("ls-remote", "--end-of-options", remote.url, self._ref)
        listed = self._git(*asked, remote=remote)
        if not any(line.endswith(f"\t{self._ref}") for line in listed.splitlines()):
            return ""
        words = (
            # Without the contents of files, where the server can leave them out.
            *("fetch", "--quiet", f"--depth={DEPTH}", "--filter=blob:none", "--no-tags"),
            *("--no-recurse-submodules", "--no-write-fetch-head", "--force", "--end-of-options"),
            *(remote.url, f"{self._ref}:{_THERE}"),
        )
        self._git(*words, remote=remote, most_bytes=self._most_bytes)
        return self._commit_at(_THERE)

    def found(self, tip: str) -> str:
        """The commit of an earlier attempt among the newest ones; empty: there is none."""
        mark = self._sending.mark
        listed = self._git(
            *(*_LOCAL, "log", "--fixed-strings", f"--grep={mark}", "--format=%H %s"),
            *(f"--max-count={DEPTH}", tip),
        )
        commits = (line.partition(" ") for line in listed.splitlines())
        return next((commit for commit, _, title in commits if title == mark), "")

    def on_top_of(self, tip: str) -> str:
        """The commit with the output, on top of another one; on its own, where there is none."""
        if self._names is None:
            names: list[bytes] = []
            self._import(self._blobs(names), f"--export-marks={self._marks}")
            self._names = names
        self._import(self._files(tip, self._names), f"--import-marks={self._marks}")
        return self._commit_at(_MADE)

    def is_pushed(self, remote: GitRemote, commit: str) -> bool:
        """Push a commit; false, when the branch has moved meanwhile."""
        try:
            words = ("--end-of-options", remote.url, f"{commit}:{self._ref}")
            self._git(*_PUSH, *words, remote=remote)
        except ApplicationError as failure:
            if any(each in failure.message for each in _RACES):
                return False
            if _REJECTED in failure.message:
                raise refused(failure.message) from failure
            raise
        return True

    def _blobs(self, names: list[bytes]) -> Iterator[bytes]:
        """What packs the contents of the files; adds their names while it is read."""
        for number, file in enumerate(self._sending.files(0), start=1):
            if number > MOST_FILES:
                raise refused(f"{self._destination.url}: takes at most {MOST_FILES} files")
            names.append(_quoted(git_name(self._destination.prefix, file.name)))
            yield b"blob\nmark :%d\ndata %d\n" % (number, file.size_bytes)
            yield from _content(file)
            yield b"\n"
        yield b"done\n"

    def _files(self, tip: str, names: Iterable[bytes]) -> Iterator[bytes]:
        """What makes the commit of files that are packed."""
        ref, mark = _MADE.encode(), self._sending.mark.encode()
        yield b"reset %s\n\ncommit %s\n" % (ref, ref)
        yield b"committer %s %d +0000\ndata %d\n%s\n" % (AUTHOR, int(time.time()), len(mark), mark)
        if tip:
            yield b"from %s\n" % tip.encode()
        for number, name in enumerate(names, start=1):
            yield b"M 100644 :%d %s\n" % (number, name)
        yield b"\ndone\n"

    def _import(self, commands: Iterable[bytes], marks: str) -> None:
        words = (*_LOCAL, "fast-import", "--quiet", "--done", "--force", marks)
        self._git(*words, feed=commands, most_bytes=self._most_bytes)

    def _commit_at(self, ref: str) -> str:
        commit = self._git("rev-parse", "--verify", f"{ref}^{{commit}}").strip()
        if COMMIT.fullmatch(commit) is None:
            raise unavailable(f"{self._destination.url}: {self._ref} is no commit")
        return commit

    @property
    def _most_bytes(self) -> int:
        """How large the folder may become; what cannot be packed takes a little more than it is."""
        size = self._sending.size_bytes
        return MOST_FETCHED_BYTES + size + size // 8

    def _git(self, *words: str, remote: GitRemote | None = None, **options: Any) -> str:
        before: tuple[str, ...] = ("--git-dir", str(self._folder))
        if remote is not None:
            before, options["variables"] = (*before, *remote.options), remote.variables
        return run_git((*before, *words), self._sending.scratch, **options)


def _content(file: OutputFile) -> Iterator[bytes]:
    """The bytes of a file, as many as were said: git would take others for commands."""
    left = file.size_bytes
    while left:
        chunk = file.content.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise unavailable(f"{file.name[:200]}: ended {left} bytes too early")
        left -= len(chunk)
        yield chunk


def git_name(prefix: str, name: str) -> bytes:
    """The name of a file in the repository, below the prefix.

    Raises: ApplicationError `Refused` for a name that git, on any system, takes for its own.
    """
    below = name_below(prefix, name)
    for part in below.split("/"):
        if part in ("", ".", ".."):
            raise refused(f"{below[:200]!r}: is no name of a file in a git repository")
        if any(_is_own(each) for each in part.split("\\")):
            raise refused(f"{below[:200]!r}: is a name that git keeps for itself; rename the file")
    return below.encode("utf-8", "surrogateescape")


def _quoted(name: bytes) -> bytes:
    """A name as `fast-import` reads it."""
    escaped = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def _is_own(part: str) -> bool:
    """Whether a system takes this for a name of git: without case, streams, or dots at its end."""
    plain = _IGNORED.sub("", part).partition(":")[0].rstrip(" .").casefold()
    return _OWN.fullmatch(plain) is not None
