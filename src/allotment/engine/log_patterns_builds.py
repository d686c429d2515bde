"""What the program says that builds and pushes images (building/trouble.py). Data."""

import re
from typing import Final

from allotment.engine.log_scan import LogPattern
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass

USER, PLATFORM = Owner.USER, Owner.PLATFORM
NEVER, UNKNOWN = RetryClass.NEVER, RetryClass.UNKNOWN
_LOGIN: Final = "Log in: allot image login REGISTRY --user NAME. "


def _pattern(diagnosis: Diagnosis, code: str, example: str) -> LogPattern:
    """Make the pattern of a line that names its code."""
    mark = f"allotment.building: [{code}] "
    regex = re.compile(rf"^{re.escape(mark)}", re.MULTILINE)
    return LogPattern(diagnosis, (mark,), regex, mark + example)


BUILDS: Final = (
    _pattern(
        Diagnosis(
            "image_base_denied",
            "You may not read a base image, or the password is refused.",
            USER,
            NEVER,
            _LOGIN + "Else ask its owner.",
        ),
        "base_denied",
        "initializing source docker://registry.example.org/base:1: reading manifest 1: "
        "unauthorized: authentication required",
    ),
    _pattern(
        Diagnosis(
            "image_base_gone",
            "A base image does not exist, or not for this kind of machine.",
            USER,
            NEVER,
            "Check the name and the tag in FROM, and in COPY --from.",
        ),
        "base_gone",
        "initializing source docker://127.0.0.1:5000/base:9: reading manifest 9: manifest "
        "unknown",
    ),
    _pattern(
        Diagnosis(
            "image_push_denied",
            "You may not write to this place in the registry, or the password is refused.",
            USER,
            NEVER,
            _LOGIN + "Then: allot image push IMAGE.",
        ),
        "push_denied",
        "trying to reuse blob sha256:1b2c: checking whether a blob exists: authentication "
        "required",
    ),
    _pattern(
        Diagnosis(
            "image_push_failed",
            "The image is built, but could not be pushed.",
            USER,
            UNKNOWN,
            "See what the registry says; then: allot image push IMAGE.",
        ),
        "push_failed",
        "127.0.0.1:5000/torch:2: writing manifest: schema unsupported",
    ),
    _pattern(
        Diagnosis(
            "image_registry_away",
            "A registry cannot be reached, or closed the connection.",
            PLATFORM,
            UNKNOWN,
            "Try again later. The built image is kept: allot image push IMAGE.",
        ),
        "registry_away",
        "pinging container registry 127.0.0.1:5000: connect: connection refused",
    ),
    _pattern(
        Diagnosis(
            "image_not_built",
            "The Dockerfile has an error.",
            USER,
            NEVER,
            "See the line that the message names.",
        ),
        "not_built",
        "dockerfile parse error line 3: unknown instruction: RUNN",
    ),
    _pattern(
        Diagnosis(
            "image_not_here",
            "You have built no image of that name.",
            USER,
            NEVER,
            "Build it: allot image build -t IMAGE DIR.",
        ),
        "not_here",
        "127.0.0.1:5000/torch:2 was not built here",
    ),
    _pattern(
        Diagnosis(
            "image_too_large",
            "Your layers are larger than allowed.",
            USER,
            NEVER,
            "Allow more with --disk SIZE, or leave files out with .dockerignore.",
        ),
        "too_large",
        "/home/ada/.local/share/allotment/images is larger than 20 GiB",
    ),
    _pattern(
        Diagnosis(
            "image_disk_full",
            "The disk with the layers of its user is full.",
            PLATFORM,
            UNKNOWN,
            "They are in ~/.local/share; XDG_DATA_HOME puts them elsewhere.",
        ),
        "no_room",
        "error creating layer: no space left on device",
    ),
    _pattern(
        Diagnosis(
            "image_no_folder",
            "The folder for the layers of its user cannot be used.",
            USER,
            NEVER,
            "Set XDG_DATA_HOME to a folder of your own on a local file system.",
        ),
        "no_folder",
        "/home/ada/.local/share/allotment/images: Permission denied",
    ),
    _pattern(
        Diagnosis(
            "image_no_builder",
            "The machine has no buildah, or does not let it work.",
            PLATFORM,
            NEVER,
            "An administrator installs buildah there, allows user namespaces, and for steps "
            "(RUN) runs the service as root.",
        ),
        "no_builder",
        "buildah is not installed on this machine",
    ),
)

STEP_FAILED: Final = _pattern(
    Diagnosis(
        "image_step_failed",
        "A step of the Dockerfile failed.",
        USER,
        UNKNOWN,
        "See what it printed: allot logs JOB.",
    ),
    "step_failed",
    "RUN make: ended with exit code 2",
)
"""What the step itself printed may tell more."""
