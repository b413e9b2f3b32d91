"""The utilisation of a node: from its watcher into the heartbeat of its watch."""

from collections.abc import Iterator

import pytest

from activities.secrets.sealing import make_master_key
from activities.settings import settings
from activities.site import utilisation
from activities.site.answers.frames import SaidGpu, SaidRun, UtilisationFrame
from activities.site.run_names import RunNames
from activities.site.utilisation import UtilisationNote
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.utilisation import GpuUtilisation, NodeUtilisation, RunUtilisation

RUN = f"job-{'0' * 26}-0-1"
NODE = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=22, minion_id="m")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, home: object) -> Iterator[list[NodeUtilisation]]:
    """The details of the heartbeats, in order."""
    make_master_key(settings().master_key_path)
    sent: list[NodeUtilisation] = []

    def keep(words: str) -> None:
        sent.append(NodeUtilisation.model_validate_json(words))

    monkeypatch.setattr(utilisation, "set_details", keep)
    return iter([sent])


def frame(*names: str) -> UtilisationFrame:
    return UtilisationFrame(
        gpus=(SaidGpu(uuid="GPU-1", percent=87, memory_used_mib=1, memory_total_mib=2),),
        runs=tuple(SaidRun(run_id=name, cpu_percent=250.0, memory_bytes=7) for name in names),
    )


def test_a_node_tells_the_use_of_its_gpus_and_of_the_runs_that_were_placed_there(
    said: Iterator[list[NodeUtilisation]],
) -> None:
    names, other = RunNames(NODE), RunNames(NODE.model_copy(update={"node_id": "nod-2"}))
    UtilisationNote(names).note(frame(names.of(RUN), other.of(RUN), "own-run"))
    (sent,) = next(said)
    assert sent.runs == (RunUtilisation(run_id=RUN, cpu_percent=250.0, memory_bytes=7),)
    assert sent.gpus == (
        GpuUtilisation(uuid="GPU-1", percent=87, memory_used_mib=1, memory_total_mib=2),
    )


def test_a_flood_of_measurements_is_one(said: Iterator[list[NodeUtilisation]]) -> None:
    note = UtilisationNote(RunNames(NODE))
    for _ in range(1000):
        note.note(frame())
    assert len(next(said)) == 1
