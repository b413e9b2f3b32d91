"""A process of its own with machines whose watchers never stop: `python -m … RUN_NAME…`.

It prints the port and the minion id of each machine, and ends with its input.
"""

import asyncio
import contextlib
import sys

from tests.failure.hostile_node import Words, answer, frame, hostile_node

PAYLOAD_BYTES = 256 << 10
FRAMES = 16
BOOT = "0123-4567"


def flood(name: str) -> bytes:
    """Log frames of a run, again and again of the same bytes."""
    payload = b"x" * PAYLOAD_BYTES
    return b"".join(
        frame(payload, kind="log", run_id=name, offset=index * PAYLOAD_BYTES, length=PAYLOAD_BYTES)
        for index in range(FRAMES)
    )


async def main(names: list[str]) -> None:
    async with contextlib.AsyncExitStack() as machines:
        for name in names:
            machine = await machines.enter_async_context(hostile_node())
            machine.says["status"] = answer(runs={}, boot_id=BOOT)
            machine.says["watch"] = Words(flood(name), repeat=1 << 30)
            sys.stdout.write(f"{machine.port} {machine.minion_id}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
