"""A stored output on its way to a destination, of files that a test names."""

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from activities.artifacts.destinations.sending import OutputFile, Sending

JOB_ID = "job-01jd0000000000000000000001"


def sending_of(
    files: Mapping[str, bytes],
    scratch: Path,
    tell: Callable[[int], None] = lambda _: None,
    attempt: int = 1,
) -> Sending:
    """One attempt of the delivery of these files, with a scratch folder of its own."""

    def opened(start: int) -> Iterator[OutputFile]:
        for name in list(files)[start:]:
            content = io.BytesIO(files[name])
            yield OutputFile(name, len(files[name]), content)
            content.close()  # As what lies in an archive, it is read before the next file.

    scratch.mkdir()
    return Sending(
        job_id=JOB_ID,
        attempt=attempt,
        files=opened,
        packed=lambda: iter(()),
        file_count=len(files),
        size_bytes=sum(map(len, files.values())),
        packed_bytes=0,
        scratch=scratch,
        done=0,
        tell=tell,
    )
