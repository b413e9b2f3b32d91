"""An installation that is ready to be used, from a plan."""

from tests.simulation.contracts import Rows
from tests.simulation.engine.engine import Engine
from tests.simulation.life import Life
from tests.simulation.outside import World
from tests.simulation.plan import Plan
from tests.simulation.rows_model import ModelRows
from tests.simulation.singletons import keep_singletons
from workflows.contracts.statuses import ProviderKind

ZONE = "us-central1-a"


def installation(plan: Plan) -> Life:
    """The accounts, providers, regions, machines and nodes of a plan, as people have made them."""
    engine = Engine(plan.seed)
    world = World(engine)
    world.chances = plan.chances
    rows = _rows(plan, engine, world)
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
        cloud = rows.add_provider(life.accounts[0], ProviderKind.GCP)
        life.providers.append(cloud)
        rows.relay()
        engine.play(life.seconds() + 60)
        life.regions.append(rows.add_region(cloud, zone=ZONE, storage=plan.has_storage_node))
    return life


def _rows(plan: Plan, engine: Engine, world: World) -> Rows:
    if plan.real_rows:
        from tests.simulation.rows_real import RealRows

        return RealRows(engine, world)
    return ModelRows(engine, world)


def _add_own_machines(life: Life) -> None:
    """Two accounts share their machines; each region is one of the first account's."""
    rows, engine = life.rows, life.engine
    provider = rows.add_provider(life.accounts[0], ProviderKind.PHYSICAL)
    life.providers.append(provider)
    rows.relay()
    engine.play(life.seconds() + 10)
    for machines in life.plan.machines:
        region = rows.add_region(provider)
        life.regions.append(region)
        rows.relay()
        for gpus in machines:
            minion = life.world.add_machine(gpus=gpus)
            life.machines.append(minion)
            life.nodes.append(rows.add_node(region, minion))
