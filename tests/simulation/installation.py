"""An installation that is ready to be used, from a plan."""

from collections.abc import Callable, Iterable

from tests.simulation.contracts import ResourceView, Rows
from tests.simulation.engine.clock import micros
from tests.simulation.engine.engine import Engine, Limits
from tests.simulation.engine.processes import OWN_SITE
from tests.simulation.life import Life
from tests.simulation.outside import World
from tests.simulation.plan import Plan
from tests.simulation.rows_model import ModelRows
from tests.simulation.singletons import keep_singletons
from workflows.contracts import queues
from workflows.contracts.statuses import ProviderKind

ZONE = "us-central1-a"


def installation(plan: Plan, *, is_recorded: bool = False) -> Life:
    """The accounts, providers, regions, machines and nodes of a plan, as people have made them.

    is_recorded: keep the histories of all workflows, for `write_histories`.
    """
    limits = Limits(suggested_events=plan.suggested_events)
    engine = Engine(plan.seed, encoded=is_recorded, keeps_histories=is_recorded, limits=limits)
    engine.clock.now = micros(plan.begins_s)
    world = World(engine)
    world.chances = plan.chances
    rows = _rows(plan, engine, world)
    rows.lifetime_s = plan.lifetime_s
    world.connect(rows)
    engine.serve(rows.effects)
    engine.serve(world.effects)
    life = Life(plan, engine, world, rows)
    engine.idle_loops["outbox"] = (lambda: not rows.waiting_requests(), 10.0)
    engine.idle_loops["placement"] = (rows.is_placement_idle, 30.0)
    keep_singletons(engine)
    life.accounts = [rows.add_account(microcredits) for microcredits in plan.microcredits]
    _add_own_machines(life)
    if plan.has_cloud:
        _add_cloud(life)
    return life


def _rows(plan: Plan, engine: Engine, world: World) -> Rows:
    if plan.real_rows:
        from tests.simulation.rows_real import RealRows

        return RealRows(engine, world)
    return ModelRows(engine, world)


def _add_own_machines(life: Life) -> None:
    """Two accounts share them; provider and regions are the first account's."""
    provider = _add_provider(life, ProviderKind.PHYSICAL)
    for index, machines in enumerate(life.plan.machines):
        own_worker = index == 0 and life.plan.has_own_site
        life.regions.append(life.rows.add_region(provider, own_worker=own_worker))
        if own_worker:
            own = queues.own_site(life.regions[-1])
            life.engine.processes.add(OWN_SITE, own, queues.watches_of(own))
        _until(life, lambda: all(one.status == "healthy" for one in life.rows.regions()))
        if life.plan.has_guests:
            life.rows.let_guests_in(life.regions[-1], life.plan.preemption_notice_s)
        for gpus in machines:
            minion = life.world.add_machine(gpus=gpus, takes_guests=life.plan.has_guests)
            life.machines.append(minion)
            life.nodes.append(life.rows.add_node(life.regions[-1], minion))
    life.rows.relay()


def _add_cloud(life: Life) -> None:
    provider = _add_provider(life, ProviderKind.GCP)
    region = life.rows.add_region(provider, zone=ZONE, storage=life.plan.has_storage_node)
    life.regions.append(region)
    life.rows.relay()


def _add_provider(life: Life, kind: ProviderKind) -> str:
    provider = life.rows.add_provider(life.accounts[0], kind)
    life.providers.append(provider)
    _until(life, lambda: _status(life.rows.providers(), provider) == "ready")
    return provider


def _until(life: Life, is_met: Callable[[], bool]) -> None:
    """Raises: RuntimeError, when it is not met within an hour, although nothing goes wrong."""
    life.rows.relay()
    for _ in range(720):
        life.engine.play(life.seconds() + 5)
        if is_met():
            return
    found = [*life.rows.providers(), *life.rows.regions()]
    raise RuntimeError(f"the installation is not ready after an hour: {found}")


def _status(resources: Iterable[ResourceView], resource_id: str) -> str:
    return next(one.status for one in resources if one.resource_id == resource_id)
