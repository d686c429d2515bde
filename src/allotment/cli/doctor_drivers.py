"""What `allot doctor` says of the drivers that GPUs need in images."""

from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.words import count


def drivers() -> list[Finding]:
    """Return whether images get the drivers of this machine's GPUs; nothing without GPUs."""
    from allotment.backends.local.cdi.found import Specifications  # noqa: PLC0415 - only here
    from allotment.backends.local.machine import real_devices  # noqa: PLC0415 - only here

    files = [path for _, paths in real_devices() for path in paths]
    if not files:
        return []
    specifications = Specifications()
    bare = [path for path in files if specifications.edits([path]) is None]
    if bare:
        text = (
            f"no CDI specification has {bare[0]}: images have to bring its drivers' libraries"
        )
        advice = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        return [Finding("drivers", Level.NOTE, text, advice)]
    edits = specifications.edits(files)
    number = count(len(edits.binds) if edits is not None else 0, "file")
    text = f"{number} of drivers for images, by CDI"
    return [Finding("drivers", Level.OK, text)]
