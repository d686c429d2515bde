"""Pods that others make: found, handed over as gangs, placed and ended."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from allotment.backends.kubernetes.asked_claims import wanted_by
from allotment.backends.kubernetes.foreign import Flaw, Rules, Wanted
from allotment.backends.kubernetes.gangs import Word
from allotment.backends.kubernetes.guests import Guests
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.offers import Finder
from allotment.backends.kubernetes.request import SCHEDULER
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.site import Site
from allotment.model.errors import EngineAway
from allotment.model.ids import TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.spec import Offered
from allotment.service.forever import forever
from allotment.service.ports import GangLaunch, Refused, Report

LOOK_EVERY_S = 1.0
SIZES_EVERY_S, RIGHTS_EVERY_S = 2.0, 5.0


class ForeignPods:
    """Those that name us as their scheduler. `resumed` are tasks that have a place already."""

    def __init__(
        self,
        site: Site,
        rules: Rules,
        silent: SilentNodes,
        sink: Callable[[Report], None],
        resumed: Mapping[TaskKey, Offered],
    ) -> None:
        self._setup, self._rules = site.setup, rules
        self._contact, self._cluster = site.contact, site.cluster
        self.guests = Guests(site, sink, silent, self._let_go)
        self._cluster.is_guest = self.guests.is_guest
        rules = msgspec.structs.replace(rules, read_claims=self._read_claims)
        self.finder = Finder(site.client, rules, self.guests.types_of, site.cluster)
        self._cluster.inventory.on_claim = self.finder.note_claim
        # Those run on that are named no more.
        self._is_needed = bool(site.setup.namespaces or resumed)
        self.guests.resume(resumed)
        self.finder.resume(pod.uid for pod in resumed.values())

    def _let_go(self, uid: str) -> None:
        self.finder.let_go(uid)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return what has to run beside it; nothing where nothing of others is placed."""
        if not self._is_needed:
            return []
        finder = self.finder
        return [
            forever(self._look, LOOK_EVERY_S, "guests"),
            forever(finder.ask_sizes, SIZES_EVERY_S, "gangs"),
            forever(finder.look_at_rights, RIGHTS_EVERY_S, "rights"),
            forever(finder.read_on, 0, "documents of pods"),
            forever(finder.weigh_claims, LOOK_EVERY_S, "claims of pods"),
            forever(finder.telling.run, LOOK_EVERY_S, "words"),
        ]

    async def _look(self) -> None:
        if not self._contact.trouble and self._cluster.is_listed:
            await self.guests.look()

    def _read_claims(self, pod: Pod) -> Wanted:
        """Return what a pod asks for by its claims. Raises Flaw."""
        try:
            self._cluster.devices.need()
        except EngineAway as error:
            raise Flaw("ClaimsUnknown", str(error)) from None
        return wanted_by(pod, self._cluster.inventory)

    # ── hearing ─────────────────────────────────────────────────────────────────────────

    def on_pod(self, pod: Pod, is_gone: bool) -> bool:
        """Note a pod of another namespace. Whether it is a task of ours."""
        is_task = self.guests.is_guest(pod.metadata.uid)
        if not is_task and not self._is_for_us(pod):
            return False
        self.finder.weigh(pod, is_gone)
        if is_task:
            self.guests.hear(pod, is_gone)
        return is_task

    def _is_for_us(self, pod: Pod) -> bool:
        """Whether its maker wants a pod placed by us: by a further name of ours, only where we
        place anything, as elsewhere that may be another scheduler."""
        if pod.spec.scheduler_name in self._setup.schedulers:
            return pod.metadata.namespace in self._rules.namespaces
        return pod.spec.scheduler_name == SCHEDULER

    def on_list(self, there: set[str]) -> None:
        """Note which pods there are in all namespaces."""
        self.finder.listed(there)
        self.guests.listed(there)

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    async def launch(self, gang: GangLaunch) -> Refused:
        """Take the pods of a gang; put one that is no gang on its node. Raises EngineAway."""
        for task in gang.tasks:
            if task.offered is not None:
                self.finder.gangs.hold(task.offered.uid)
        return await self.guests.launch(gang)

    async def stop(self, key: TaskKey, grace_ms: Millis, cause: StopCause | None) -> None:
        """Remove a pod from its node. Raises EngineAway."""
        self.finder.gangs.stop(self.guests.gang_pod(key))
        await self.guests.stop(key, grace_ms, cause)

    # ── offers ──────────────────────────────────────────────────────────────────────────

    def is_offered(self, offer: str) -> bool | None:
        """Whether a gang is still to be placed; None where that is not known."""
        return self.finder.is_offered(offer) if self._cluster.sees_all else None

    def say(self, offered: Sequence[Offered], reason: str, message: str) -> None:
        """Write on pods why they wait."""
        for pod in offered:
            self.finder.telling.say(pod, Word(reason, message))
