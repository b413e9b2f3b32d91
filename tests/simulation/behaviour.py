"""What the commands of a job do, as a plan says and the machines of the world play it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Behaviour:
    """What the commands of a job do on their machines."""

    seconds: float
    """How long a command takes; infinite: until it is ended, as endpoints and notebooks do."""
    exit_code: int = 0
    fails_first: int = 0
    """So many attempts fail with exit code 1 before that."""
    ignores_sigterm: bool = False
    """It ends by the kill alone, after the grace."""
    unkillable_s: float = 0.0
    """It lives on for so long after the kill: processes in uninterruptible sleep."""
    saves_state: bool = False
    writes_output: bool = True
    idles_after_s: float = float("inf")
    """From then on it prints nothing, and its GPUs rest."""
