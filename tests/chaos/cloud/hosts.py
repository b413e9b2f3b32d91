"""What marketplaces and the hosts of rented machines do meanwhile."""

from __future__ import annotations

import asyncio

from tests.chaos.campaign_stack import aside
from tests.chaos.cloud.faults import ROUND_LIMIT_S, WHILE_IT_RUNS, Act, Scene, kind
from tests.chaos.cloud.markets.market import (
    HOST_DIES,
    HOST_LIES,
    HOST_STANDS_STILL,
    OF_A_MARKET,
)

STILL_S = 15.0


@kind(HOST_DIES)
async def host_dies(scene: Scene) -> None:
    """The host of a machine that runs is gone; its job has another one, and begins again."""
    async for _ in scene.as_they_come(*WHILE_IT_RUNS, times=1):
        if await aside(scene.room.market.lose, scene.machine):
            scene.round.lost += 1
            scene.inject()


@kind(HOST_STANDS_STILL)
async def host_stands_still(scene: Scene) -> None:
    """A host takes connections and does nothing else, for longer than anybody waits for an answer;
    then it goes on."""
    market = scene.room.market
    async for _ in scene.as_they_come(*WHILE_IT_RUNS, times=1):
        if await aside(market.stand_still, scene.machine):
            scene.inject()
            await asyncio.sleep(STILL_S)
            await aside(market.go_on, scene.machine)


def misdeed(name: str) -> Act:
    """The marketplace does this every few calls, as long as the round lasts."""

    async def act(scene: Scene) -> None:
        with scene.room.market.misbehaving(name) as losses:
            await scene.round.settle(ROUND_LIMIT_S)
        scene.inject(losses.struck)
        if name == HOST_LIES:  # What was not offered is found to be so, and another one is made.
            scene.round.lost += losses.struck

    return act


for _name in OF_A_MARKET:
    kind(_name)(misdeed(_name))
