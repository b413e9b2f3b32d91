"""What people follow works on a real stack: the commands of the documents, and the examples.

All of it in one module, because a second one would start a second stack.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.docs.reader import LIMIT_S, Browser, Reader
from tests.docs.snippets import SHELL, blocks, documents
from tests.lab.waiting import wait_until
from workers.runner.lifecycle import bring_down
from workers.runner.settings import CHECKOUT

pytestmark = pytest.mark.timeout(LIMIT_S + 60)
README, NOTEBOOK, SWEEP = "README.md", "docs/services.md", "docs/workers.md"
PACKAGES = "PYTHONPATH=.:/usr/lib/python3/dist-packages"
"""Debian's PyTorch, so that none is fetched."""
OLD_TORCHRUN = """
from torch.distributed.elastic.multiprocessing.api import Std
Std.from_str = classmethod(lambda cls, text: Std.NONE)
"""
"""The torchrun of PyTorch 1.13, Debian's own, does not read its options with Python 3.11."""
FOUR = """
 0 0 0 2 13 0 0 0
 0 0 0 8 15 0 0 0
 0 0 5 16 5 2 0 0
 0 0 15 12 1 16 4 0
 0 4 16 2 9 16 8 0
 0 0 10 14 16 16 4 0
 0 0 0 0 13 8 0 0
 0 0 0 0 13 6 0 0
"""


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


def scripts_of(document: str) -> list[str]:
    """What each block of a document says to type, less the comments behind it."""
    return [
        re.sub(r" {2,}# .*", "", block.text)
        for block in blocks(document)
        if block.language in SHELL and not block.not_run
    ]


def script_of(document: str) -> str:
    return "".join(scripts_of(document))


def followed() -> list[str]:
    """The documents of which nothing is typed below, unless the README has said all of it."""
    said = script_of(README)
    pages = (path for path in documents() if path.startswith("docs/"))
    others = (path for path in pages if path not in (NOTEBOOK, SWEEP))
    return [path for path in others if script_of(path) not in said]


def test_what_the_readme_says_to_type_works(reader: Reader) -> None:
    reader.types(script_of(README))
    assert (reader.folder / "first-output" / "sum").read_text() == "36"


@pytest.fixture(scope="module")
def stack(reader: Reader) -> Reader:
    """A reader whose stack is up, since the README was followed or from now on."""
    if not reader.has_stack:
        reader.types("make up")
    return reader


@pytest.mark.parametrize("document", followed())
def test_what_a_document_says_to_type_works(stack: Reader, document: str) -> None:
    stack.types(script_of(document))


def outputs(reader: Reader, job: str) -> dict[str, bytes]:
    """The files of a job's output, by their names."""
    to = reader.folder / f"output-{job}-{uuid4().hex}"
    files = reader.shows("output", job, "--to", str(to))["files"]
    return {name: (to / name).read_bytes() for name in files}


def runs(reader: Reader, example: str, **files: str) -> dict[str, bytes]:
    """Run a training example with Debian's PyTorch to its end. Its output."""
    job_file = reader.has_another(example, requirements__txt="# Debian's\n", **files)
    reader.baseload("submit", job_file, "--env", PACKAGES, "--follow")
    return outputs(reader, example)


def test_pytorch_trains_and_its_model_is_kept(stack: Reader) -> None:
    assert len(runs(stack, "pytorch")["model.pt"]) > 1000
    assert "epoch 200 on cpu" in stack.baseload("logs", "pytorch")


def test_two_workers_of_torchrun_learn_one_model(stack: Reader) -> None:
    found = runs(stack, "torchrun", sitecustomize__py=OLD_TORCHRUN)
    slopes = {name.rpartition("/")[2]: text for name, text in found.items()}
    assert slopes == {"slope-0": b"3.000\n", "slope-1": b"3.000\n"}


def test_each_job_of_a_sweep_keeps_its_own_result(stack: Reader) -> None:
    stack.types(script_of(SWEEP))
    kept = stack.folder / "sweep-output"
    found = [json.loads((kept / str(n) / "result.json").read_text()) for n in range(4)]
    assert [one["learning_rate"] for one in found] == [0.3, 0.03, 0.003, 0.0003]
    assert found[0]["loss"] < 0.02 < found[3]["loss"]


def answers(reader: Reader, job: str) -> str:
    """Wait until a service answers. A link to its pages."""
    reader.baseload("wait", job, "--for", "running")
    path = f"/v1/jobs/{reader.shows('show', job)['id']}/link"
    wait_until(lambda: reader.asks("POST", path).json().get("ready"), f"{job} answers", LIMIT_S)
    return reader.baseload("link", job).strip()


def test_the_endpoint_tells_a_digit(stack: Reader) -> None:
    stack.baseload("submit", "examples/endpoint/job.yaml")
    answers(stack, "endpoint")
    path = f"/v1/jobs/{stack.shows('show', 'endpoint')['id']}/endpoint/predict"
    answer = stack.asks("POST", path, {"pixels": [int(pixel) for pixel in FOUR.split()]})
    assert (answer.status_code, answer.json()) == (200, {"digit": 4})
    stack.baseload("cancel", "endpoint", "--discard")


def test_a_notebook_runs_cells_and_has_its_files_after_a_stop(
    stack: Reader, tmp_path: Path
) -> None:
    begin, pause, end = scripts_of(NOTEBOOK)
    stack.types(begin)
    with closing(Browser(answers(stack, "notebook"))) as browser:
        assert "JupyterLab" in browser.asks("GET", "/lab").text
        assert run_cell(browser, "open('made', 'w').write('by a cell'); print(6 * 7)") == "42\n"
        body = {"type": "file", "format": "text", "content": "by the page"}
        made = browser.asks("PUT", "/api/contents/notes.txt", body)
        assert made.status_code == 201, made.text
    stack.types(pause)
    with closing(Browser(answers(stack, "notebook"))) as browser:
        found = {
            name: browser.asks("GET", f"/api/contents/{name}").json()["content"]
            for name in ("notes.txt", "made")
        }
    assert found == {"notes.txt": "by the page", "made": "by a cell"}
    fetched = stack.shows("output", "notebook", "--snapshot", "--to", str(tmp_path / "kept"))
    assert {"work/notes.txt", "work/made"} <= set(fetched["files"])
    stack.types(end)


def run_cell(browser: Browser, code: str) -> str:
    """What a cell prints in a new kernel."""
    kernel = browser.asks("POST", "/api/kernels", {}).json()["id"]
    content = {"code": code, "silent": False, "allow_stdin": False, "stop_on_error": True}
    asked = {
        "header": {"msg_id": uuid4().hex, "msg_type": "execute_request", "username": "",
                   "session": uuid4().hex, "version": "5.3"},
        "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": [],
    }  # fmt: skip
    with browser.connects(f"/api/kernels/{kernel}/channels") as channels:
        channels.send(json.dumps(asked))
        while True:
            told = json.loads(channels.recv(60))
            assert told["msg_type"] != "error", told["content"]
            if told["msg_type"] == "stream":
                return str(told["content"]["text"])
