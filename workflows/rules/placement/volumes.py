"""Who has a volume: one job that writes to it, or any number that read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.placement import Demand, PendingJob, Refusal

_DOES = {VolumeAccess.WRITE: "writes to it", VolumeAccess.READ: "reads it"}
TAKEN = "volume"
"""The code of the refusal of a job that waits for one of its volumes."""
SHOWN = 3
"""How many readers a refusal names."""


@dataclass(frozen=True, slots=True)
class VolumeHolder:
    """A job that has a volume."""

    job_id: str
    name: str
    access: VolumeAccess

    def excludes(self, access: VolumeAccess) -> bool:
        """Whether a job with this access must wait for the holder."""
        return VolumeAccess.WRITE in (access, self.access)

    def __str__(self) -> str:
        return f"job {self.name} ({self.job_id}) {_DOES[self.access]}"


class VolumeHolders:
    """The holders of volumes in a planning round, with the jobs that it has placed.

    held: by volume, the jobs that had it when the round began.
    """

    def __init__(self, held: Mapping[str, Sequence[VolumeHolder]]) -> None:
        self._held = {volume_id: list(holders) for volume_id, holders in held.items()}

    def refusal(self, demand: Demand) -> Refusal | None:
        """Why a job has to wait for one of its volumes; None: it has not."""
        for volume_id, access in demand.volumes:
            holders = self._held.get(volume_id, ())
            others = [holder for holder in holders if holder.excludes(access)]
            if others:
                more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
                named = ", ".join(map(str, others[:SHOWN]))
                detail = f"volume {volume_id}: asked to {access}; {named}{more}"
                return Refusal(offer_id="none", code=TAKEN, detail=detail)
        return None

    def take(self, job: PendingJob) -> None:
        """Count a job that the round has placed among the holders."""
        for volume_id, access in job.demand.volumes:
            holder = VolumeHolder(job.job_id, job.name, access)
            self._held.setdefault(volume_id, []).append(holder)
