"""Each rule of the engine, by small workflows of its own."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from tests.simulation.engine.engine import Engine
from workflows.contracts.base import Contract


class Text(Contract):
    text: str = ""


def echo(attempt, asked):
    return Text(text=asked.text + "!")


@workflow.defn(name="Story", sandboxed=False)
class Story:
    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, request: Text) -> Text:
        first = await workflow.execute_activity(
            "echo",
            request,
            result_type=Text,
            start_to_close_timeout=timedelta(seconds=5),
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1)),
        )
        second = await workflow.execute_local_activity(
            "echo",
            first,
            result_type=Text,
            start_to_close_timeout=timedelta(seconds=2),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )
        await workflow.sleep(10)
        await workflow.wait_condition(lambda: len(self.heard) > 1)
        return Text(text=second.text + ",".join(self.heard))

    @workflow.signal
    def tell(self, what: Text) -> None:
        self.heard.append(what.text)


def test_a_workflow_runs_to_its_end() -> None:
    engine = Engine(1, workflows=[Story])
    engine.serve({"echo": echo})
    engine.start("Story", "s", Text(text="a"))
    engine.later(3, lambda: engine.signal("s", "tell", Text(text="x")))
    engine.later(30, lambda: engine.signal("s", "tell", Text(text="y")))
    assert engine.play() == "nothing"
    assert engine.result("s") == Text(text="a!!x,y")
