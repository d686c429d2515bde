"""What the user of a job is told that asks for parts of devices."""

from allotment.model.quantity import DEVICE, show_milli
from allotment.model.spec import JobSpec


def told_of_parts(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning where tasks get parts of a device: nothing keeps them to these."""
    parts = [
        role.resources.gpu_milli for role in spec.roles if role.resources.gpu_milli % DEVICE
    ]
    if not parts:
        return ()
    return (
        f"gpu: {show_milli(parts[0])} of a GPU is counted, not enforced: a task can take more "
        "of its time and memory, and so can jobs that share it. A whole GPU is never shared.",
    )
