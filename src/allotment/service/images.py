"""Images, as the service offers them: each user's own rights count, and an administrator's."""

import os
from collections.abc import Sequence

import msgspec

from allotment.engine.state import State
from allotment.model.copied_texts import excess_of_texts
from allotment.model.engines import Ability
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor
from allotment.model.spec import JobSpec, Mpi
from allotment.service.abilities import INSTEAD
from allotment.service.access import is_admin, may_administer
from allotment.service.host_accounts import HostAccounts
from allotment.service.image_policy import ImageNotAllowed, check_fetched, check_own_image
from allotment.service.image_view import ImageRow, ImageView
from allotment.service.launch import Account, image_wish
from allotment.service.ports import Backend, ImageStore, ImageWish, Imaging


class Images:
    """Asks the engine that runs images, if there is one."""

    def __init__(self, state: State, backend: Backend) -> None:
        self._state = state
        self._backend = backend
        self._accounts = HostAccounts()

    async def settled(self, spec: JobSpec, owner: Actor) -> JobSpec:
        """Return a job with its image named by digest: every attempt runs the same bytes.

        A role without command gets the image's own, as far as it can be read here.

        Raises Rejected where there is no such image, this user may not read it, or the job's
        tenant may not use it.
        """
        try:
            check_own_image(self._state, spec, owner)
        except ImageNotAllowed as trouble:
            raise trouble.refusal() from trouble
        if not spec.image or not isinstance(self._backend, Imaging):
            return spec  # Admission refuses what no engine can do.
        if Ability.IMAGES not in self._backend.abilities:
            return spec
        if spec.batch is not None:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "A batch script cannot run in an image yet.",
                "Take `image` out, or give the job a `command` in place of the script.",
            )
        if spec.mpi is not Mpi.NONE:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "The ranks of a program with MPI cannot run in an image yet.",
                "Take `image` or `mpi` out.",
            )
        wish = image_wish(spec, await self._account(owner))
        images = self._backend.images()
        exact = await images.resolve(wish)
        spec = msgspec.structs.replace(spec, image=exact)
        if all(role.command for role in spec.roles):
            return spec
        own = await images.command(msgspec.structs.replace(wish, reference=exact))
        return with_own_command(spec, own)

    async def inspect(self, image: str, actor: Actor) -> ImageView:
        """Return what an image consists of. Raises Rejected."""
        return await self._store().inspect(await self._wish(image, actor))

    async def warm(self, image: str, actor: Actor) -> ImageView:
        """Fetch an image, so that it is there when a task wants it. Raises Rejected."""
        self.check_fetched(image, actor)
        return await self._store().warm(await self._wish(image, actor))

    def check_fetched(self, image: str, actor: Actor) -> None:
        """Raise Rejected where no tenant of a user may use an image that is to be fetched."""
        try:
            check_fetched(self._state, image, actor)
        except ImageNotAllowed as trouble:
            raise trouble.refusal() from trouble

    async def rows(self, actor: Actor) -> Sequence[ImageRow]:
        """Return the images in the store: those this user has used, or all. Raises Rejected."""
        uid = os.geteuid() if actor.uid is None else actor.uid
        return await self._store().rows(None if is_admin(actor) else uid)

    async def remove(self, image: str, actor: Actor) -> None:
        """Remove an image from the store. Raises Rejected."""
        may_administer(actor)
        await self._store().remove(image)

    async def expected(self, spec: JobSpec, owner: Actor) -> str:
        """Return what would be fetched for a job, in words; '' if nothing would be."""
        if not spec.image or not isinstance(self._backend, Imaging) or "@" not in spec.image:
            return ""  # Another engine fetches it by itself.
        wish = image_wish(spec, await self._account(owner))
        try:
            view = await self._backend.images().inspect(wish)
        except Rejected as refusal:
            if refusal.code is not Code.NOT_SUPPORTED:
                raise
            return ""  # Images are kept by something else there.
        return view.plan() if not view.is_here else ""

    def _store(self) -> ImageStore:
        if not isinstance(self._backend, Imaging):
            raise Rejected(
                Code.NOT_SUPPORTED, "No engine here can run images.", INSTEAD[Ability.IMAGES]
            )
        return self._backend.images()

    async def _wish(self, image: str, actor: Actor) -> ImageWish:
        account = await self._account(actor)
        wish = ImageWish(image, account.name, account.home, identity=account.identity)
        return msgspec.structs.replace(wish, sees_all=is_admin(actor))

    async def _account(self, actor: Actor) -> Account:
        try:
            return await self._accounts.of(actor)
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", "Try again.") from error


def with_own_command(spec: JobSpec, own: tuple[str, ...]) -> JobSpec:
    """Return a job whose roles without command run that of its image."""
    roles = tuple(
        role if role.command else msgspec.structs.replace(role, command=own)
        for role in spec.roles
    )
    return msgspec.structs.replace(spec, roles=roles)


def check_texts(spec: JobSpec, copies: int) -> None:
    """Raise Rejected where the command of its image makes a job too large."""
    if (found := excess_of_texts(spec, copies)) is not None:
        raise Rejected(
            Code.TOO_LARGE,
            f"With the command of its image, the job {found[0]}.",
            "Write a shorter `command`.",
        )
