from tests.lab.fixtures import boot_machine, lab

__all__ = ["boot_machine", "lab"]
