"""Revisions of git repositories, fetched by the `git` program over HTTPS or SSH alone."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from activities.artifacts.git_process import (
    COMMIT,
    MOST_S,
    check_version,
    git_failure,
    git_remote,
    git_started,
    run_git,
)
from activities.artifacts.sources.tar_streams import (
    CHUNK_BYTES,
    OpenedSource,
    after,
    unavailable,
)
from workflows.contracts.artifacts import GitSource


def open_git(
    source: GitSource, scratch: Path, most_bytes: int, key: Mapping[str, str] | None = None
) -> OpenedSource:
    """The files of a revision, without `.git`, submodules and large files kept elsewhere. Blocking.

    scratch: a folder for the packed revision, and for the key while it is fetched.
    key: the fields of a third-party key; None: the repository is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    check_version(scratch)
    repository = scratch / "repository"
    run_git(("init", "--quiet", "--bare", str(repository)), scratch)
    with git_remote(source.url, key, scratch) as remote:
        fetch = (
            *("--git-dir", str(repository), *remote.options, "fetch", "--quiet", "--depth=1"),
            *("--no-tags", "--no-recurse-submodules", "--end-of-options"),
            *(remote.url, source.revision),
        )
        run_git(fetch, scratch, most_bytes=most_bytes, variables=remote.variables)
    asked = ("--git-dir", str(repository), "rev-parse", "--verify", "FETCH_HEAD^{commit}")
    commit = run_git(asked, scratch).strip()
    if COMMIT.fullmatch(commit) is None:
        raise unavailable(f"{source.url}: {source.revision} is no commit")
    chunks = partial(_archive, repository, commit)
    return OpenedSource(f"git {source.url} {commit}", lambda begin: after(chunks(), begin))


def _archive(repository: Path, commit: str) -> Iterator[bytes]:
    """The tar of a commit, which is the same each time."""
    words = ("--git-dir", str(repository), "archive", "--format=tar", commit)
    with git_started(words, repository, is_read=True) as started:
        assert started.running.stdout is not None  # noqa: S101 - it is a pipe
        with started.running.stdout as packed:
            while chunk := packed.read(CHUNK_BYTES):
                yield chunk
        started.running.wait(MOST_S)
    if code := started.running.returncode:
        raise git_failure(started.problems.text() or f"archive {commit}: ended with {code}")
