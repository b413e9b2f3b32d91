"""The requirements of a device: a Jetson that the platform knows."""

from workflows.contracts.nodes import Hardware, Requirement
from workflows.rules.devices.models import DeviceModel, device_model_of, refusal_of

DEVICE_MODEL = "device-model"


def requirements_of(hardware: Hardware) -> tuple[Requirement, ...]:
    """What a machine must be to be a device, with what was found."""
    model = device_model_of(hardware)
    known = ", ".join(DeviceModel)
    found = str(model) if model is not None else refusal_of(hardware) or "another machine"
    passed = model is not None
    return (Requirement(name=DEVICE_MODEL, required=known, found=found, passed=passed),)
