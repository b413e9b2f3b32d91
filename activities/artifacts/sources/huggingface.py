"""Repositories at Hugging Face: the files of one commit, which never change.

Its library takes most of a second to import, so its caller imports it when a source needs it.
"""

from functools import partial
from typing import Any
from urllib.parse import quote

from huggingface_hub import HfApi
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from activities.artifacts.sources.tar_streams import (
    OpenedSource,
    SourceFile,
    refused,
    tar_of,
    tar_size,
    unavailable,
)
from activities.artifacts.sources.web import RemoteFile, remote_bytes
from activities.settings import settings
from workflows.contracts.artifacts import MOST_FILES, HuggingFaceSource

LIST_LIMIT_S = 60.0
_FOLDERS = {"model": "", "dataset": "datasets/"}
"""What the URL of a repository begins with, by its kind."""


def open_repository(source: HuggingFaceSource, token: str | None) -> OpenedSource:
    """The files of the commit that the revision names now. Blocking.

    token: of a person who may read the repository; None: it is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    commit, sizes = _listed(source, token)
    if len(sizes) > MOST_FILES:
        raise refused(f"{source.repo}: has at most {MOST_FILES} files")
    base = f"{settings().huggingface_endpoint}/{_FOLDERS[source.kind]}{source.repo}"
    authorization = "" if token is None else f"Bearer {token}"
    files = []
    for name, size in sorted(sizes.items()):
        file = RemoteFile(f"{base}/resolve/{commit}/{quote(name)}", size, "", authorization)
        files.append(SourceFile(name, size, partial(remote_bytes, file)))
    identity = f"huggingface {source.kind} {source.repo} {commit}"
    return OpenedSource(identity, partial(tar_of, files), tar_size(files))


def _listed(source: HuggingFaceSource, token: str | None) -> tuple[str, dict[str, int]]:
    """The commit of a revision, and the sizes of its files by their names."""
    # Without a token it must not look for one: the host may have one of its own.
    hub = HfApi(endpoint=settings().huggingface_endpoint, token=token or False)
    where = f"{source.kind} {source.repo} at {source.revision}"
    try:
        found: Any = hub.repo_info(
            source.repo,
            repo_type=source.kind,
            revision=source.revision,
            timeout=LIST_LIMIT_S,
            files_metadata=True,
        )
    except (RepositoryNotFoundError, RevisionNotFoundError, GatedRepoError) as error:
        raise refused(f"{where}: there is none that may be read: {type(error).__name__}") from error
    except HFValidationError as error:
        raise refused(f"{where}: {error}") from error
    except (HfHubHTTPError, OSError) as error:
        raise unavailable(f"{where}: {type(error).__name__}") from error
    siblings = found.siblings or ()
    sizes = {each.rfilename: each.size for each in siblings}
    if not found.sha or not siblings or None in sizes.values():
        raise unavailable(f"{where}: the hub has not said which files there are")
    return found.sha, {name: size or 0 for name, size in sizes.items()}
