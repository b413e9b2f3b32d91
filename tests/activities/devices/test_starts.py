"""What a deployment that is adopted from its row still knows."""

from activities.db import tables
from activities.db.session import Database
from activities.devices.starts import resume_deployment, start_deployment
from activities.lifecycles.record import record
from tests.activities.devices.rows import add_configuration, add_deployment, add_device
from tests.activities.rows import NOW
from workflows.contracts.deployments import DeploymentRequest
from workflows.contracts.lifecycles import DeploymentChanges, Record


def test_an_adopted_deployment_goes_on_with_the_losses_that_a_person_has_accepted(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        configuration = add_configuration(session)
        devices = [add_device(session, configuration, name) for name in ("n1", "n2")]
        deployment_id = add_deployment(session, configuration, devices).id
    step = Record(
        resource_id=deployment_id,
        account_id=configuration.account_id,
        sequence=1,
        status="rolling_out",
        changes=DeploymentChanges(accepted_lost=2),
        at=NOW,
    )
    assert record(step).applied
    with migrated.read() as session:
        row = session.get_one(tables.DeviceDeployment, deployment_id)
        request = start_deployment(session, row).argument
        assert isinstance(request, DeploymentRequest)
        assert resume_deployment(session, row, request).accepted_lost == 2
