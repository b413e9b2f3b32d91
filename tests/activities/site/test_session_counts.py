"""How many sessions one run may have on its node."""

import contextlib
from collections.abc import AsyncGenerator

import pytest
from temporalio.exceptions import ApplicationError

from activities.settings import settings
from activities.site.answers.reading import refusal_code
from activities.site.sessions import node_session
from activities.site.sessions.node_session import RunDoor
from workflows.contracts.nodes import NodeAddress

NODE = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=22, minion_id="SHA256:x")
MOST = 3


async def test_one_run_has_so_many_sessions_on_its_node_whatever_they_come_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.asynccontextmanager
    async def opened(*_: object) -> AsyncGenerator[object]:
        yield object()

    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "ab" * 32)
    settings.cache_clear()
    monkeypatch.setattr(node_session, "MOST_OF_RUN", MOST)
    monkeypatch.setattr(RunDoor, "_opened", opened)
    async with contextlib.AsyncExitStack() as held:
        for number in range(MOST):
            door = RunDoor(NODE, "job-many-sessions-0-1")
            session = door.command(("true",), None) if number % 2 else door.port(8888)
            await held.enter_async_context(session)
        with pytest.raises(ApplicationError, match="has 3 sessions open") as caught:
            await held.enter_async_context(RunDoor(NODE, "job-many-sessions-0-1").command((), None))
        assert refusal_code(caught.value) == "too-many-sessions"
        await held.enter_async_context(RunDoor(NODE, "job-uncounted-beside-0-1").command((), None))
    async with RunDoor(NODE, "job-many-sessions-0-1").port(8888):
        settings.cache_clear()
