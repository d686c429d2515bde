"""Images on Slurm: Apptainer runs them, as the task's user, with that user's own passwords.

It fetches what is not in the user's cache when the task starts. What a name means, and
whether its user may have it, the service asks the registry when the job is accepted.
"""

import csv
import io
import shutil
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from allotment.backends.local.images.images import Images
from allotment.backends.local.in_image import OF_ANYBODY
from allotment.model.engines import Ability, EngineSetup
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.image_names import parse
from allotment.service.abilities import INSTEAD
from allotment.service.image_view import ImageRow, ImageView
from allotment.service.ports import DataMount, GangLaunch, ImageWish, TaskLaunch

NONE = "none"
"""In the configuration: no images, whatever is installed."""


def program_of(setup: EngineSetup) -> str:
    """Return the program that runs images on the nodes; '' where there is none."""
    if setup.apptainer == NONE:
        return ""
    return setup.apptainer or _found()


@cache
def _found() -> str:
    """Return where Apptainer is on this machine: nodes are taken to be alike."""
    return shutil.which("apptainer") or ""


def container_of(gang: GangLaunch, task: TaskLaunch, program: str) -> dict[str, object] | None:
    """Return in what a task's command is to be run; None for a job without image.

    Raises BackendError where nothing runs images.
    """
    wish = gang.image_wish
    if wish is None:
        return None
    if not program:
        raise BackendError("nothing here runs images any more: Apptainer is not found")
    image = parse(wish.reference)
    return {
        "program": program,
        "options": [
            "--no-eval",  # What the job says is text: not to be read by a shell once more.
            *(["--no-https"] if image.is_near else []),
            *_mounts(DataMount(path, path) for path in gang.read_only),
            *_mounts(DataMount(path, path, write=True) for path in gang.writable),
            *_mounts(gang.data),
            "--pwd", wish.begins_in or gang.workdir,
        ],
        "image": f"docker://{image.exact if image.digest else image}",
        "env_prefix": f"{Path(program).name.upper()}ENV_",
        "of_image": sorted(OF_ANYBODY - gang.named),
        "has_devices": bool(task.binding.types),
    }  # fmt: skip


def _mounts(mounts: Iterable[DataMount]) -> Sequence[str]:
    words: list[str] = []
    for each in mounts:
        line, how = io.StringIO(), () if each.write else ("ro",)
        fields = ("type=bind", f"source={each.source}", f"destination={each.at}", *how)
        csv.writer(line, lineterminator="").writerow(fields)
        words += ["--mount", line.getvalue()]
    return words


class ApptainerImages:
    """What can be said of images where Apptainer keeps them, in the users' own caches."""

    def __init__(self, program: str, images: Images | None) -> None:
        self.program = program if images is not None else ""
        self._images = images

    async def resolve(self, wish: ImageWish) -> str:
        """Return the name with its present digest. Raises Rejected."""
        return await self._asking().resolve(wish)

    async def command(self, wish: ImageWish) -> tuple[str, ...]:
        """Return the image's own entry point and command. Raises Rejected."""
        return await self._asking().command(wish)

    async def inspect(self, wish: ImageWish) -> ImageView:  # noqa: ARG002
        """Raise Rejected: how much of it is in the user's cache, nobody else knows."""
        self._asking()
        _not_ours("To list yours: apptainer cache list")

    async def warm(self, wish: ImageWish) -> ImageView:
        """Raise Rejected: a node fetches when a task starts."""
        self._asking()
        _not_ours(f"To fetch ahead, run on a node: apptainer pull docker://{wish.reference}")

    async def rows(self, uid: int | None) -> Sequence[ImageRow]:  # noqa: ARG002
        """Raise Rejected: what is in a user's cache is that user's matter."""
        self._asking()
        _not_ours("To see yours: apptainer cache list")

    async def remove(self, image: str) -> None:  # noqa: ARG002
        """Raise Rejected, as `rows`."""
        self._asking()
        _not_ours("To empty yours: apptainer cache clean")

    def _asking(self) -> Images:
        if self._images is None or not self.program:
            raise Rejected(
                Code.NOT_SUPPORTED, "No engine here can run images.", INSTEAD[Ability.IMAGES]
            )
        return self._images


def _not_ours(hint: str) -> NoReturn:
    raise Rejected(
        Code.NOT_SUPPORTED, "Images are kept by Apptainer here, in each user's cache.", hint
    )
