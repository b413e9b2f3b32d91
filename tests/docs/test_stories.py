"""The commands of the documents that people follow, run from top to bottom against a real stack."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.snippets import SHELL, blocks, documents
from workers.runner.lifecycle import bring_down
from workers.runner.probes import free_port
from workers.runner.settings import CHECKOUT

LIMIT_S = 240
FOLLOWED = ("README.md", *(path for path in documents() if path.startswith("docs/")))


@dataclass(frozen=True)
class Reader:
    """Somebody in a checkout, with a home and ports that no other stack has."""

    folder: Path
    api_port: int = field(default_factory=free_port)

    @property
    def home(self) -> Path:
        return self.folder / ".baseload"

    def types(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Run the blocks of one document in one shell that ends at the first error."""
        environment = {
            **os.environ,
            "BASELOAD_HOME": str(self.home),
            "BASELOAD_API": f"127.0.0.1:{self.api_port}",
            "BASELOAD_TEMPORAL_PORT": str(free_port()),
            "BASELOAD_UI_PORT": str(free_port()),
        }
        return subprocess.run(
            ["sh", "-eux", "-c", script.replace(":8700", f":{self.api_port}")],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The checkout under another path: what its commands make there is not left in it."""
    folder = tmp_path_factory.mktemp("reader")
    for path in CHECKOUT.iterdir():
        if path.name not in (".baseload", ".git"):
            (folder / path.name).symlink_to(path)
    reader = Reader(folder)
    yield reader
    bring_down(reader.home, lambda _: None)


def script_of(document: str) -> str:
    return "".join(
        block.text for block in blocks(document) if block.language in SHELL and not block.not_run
    )


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("document", FOLLOWED)
def test_what_a_document_says_to_type_works(reader: Reader, document: str) -> None:
    script = script_of(document)
    begin = "" if "make up" in script else "make up\n"
    done = reader.types(begin + 'PATH="$PWD/.venv/bin:$PATH"\n' + script)
    assert done.returncode == 0, done.stdout
