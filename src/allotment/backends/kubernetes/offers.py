"""Finds, among the pods that name us as their scheduler, the gangs that are whole."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, perf_counter

import msgspec
import structlog

from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.foreign import (
    VERSIONS,
    Claim,
    Flaw,
    Rules,
    Wanted,
    claim_of,
    is_hived,
)
from allotment.backends.kubernetes.gangs import Gang, Gangs, Size, Word
from allotment.backends.kubernetes.group_size import size_in
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.offer import offer_of
from allotment.backends.kubernetes.rights import FOREIGN
from allotment.backends.kubernetes.telling import Telling
from allotment.model.errors import BackendError
from allotment.model.spec import Offered
from allotment.service.in_turns import in_turns
from allotment.service.ports import Offer

log = structlog.get_logger("allot.kubernetes")

MOST_AT_ONCE = 128
"""Gangs that are handed over together."""
REST = 3.0
"""Times as long as it weighed pods others have the time."""
UNSURE = "whether Allotment has the rights to place it is looked for"
RIGHTS_S = 300.0
"""How often rights that are there are looked for again."""
MOST_AGAIN = 50
"""Pods that are weighed again in one look, for their claims."""
MOST_NAMES = 32
"""Claims of a pod that are heard of."""
MOST_ASKED = 16
"""Objects that are asked in one look: namespaces take turns."""


class Finder:
    """Weighs each pod that waits; hands over each gang once."""

    def __init__(
        self,
        client: Client,
        rules: Rules,
        types_of: Callable[[], Mapping[str, tuple[str, ...]]],
        cluster: Cluster,
    ) -> None:
        self._client, self._rules, self._types_of = client, rules, types_of
        self._cluster = cluster
        self._bare = msgspec.structs.replace(rules, read_claims=_no_matter)
        """For pods that have their place: their claims say no more."""
        self._claiming: dict[str, tuple[Offered, set[str]]] = {}
        """By uid: pods that wait and have resource claims, and these by NAMESPACE/NAME."""
        self._by_claim: dict[str, set[str]] = {}
        """The uids of these pods, by claim."""
        self._again: dict[str, None] = {}
        """Those of them that have to be weighed again."""
        self._devices_at = 0
        """At which version of the nodes that was done for all that have a flaw."""
        self.gangs = Gangs()
        self.telling = Telling(client)
        self._names: dict[str, str] = {}
        """The uid of pods that wait, by name."""
        self._unread: dict[str, dict[str, Pod]] = {}
        """By namespace and uid: pods of which a document has to be read, which takes time."""
        self._to_read = asyncio.Event()
        self._flaws: dict[str, tuple[Offered, Word]] = {}
        """Of pods that are not placed as they are, by uid."""
        self._lacking = dict.fromkeys(rules.namespaces, UNSURE)
        """Why nothing of a namespace is placed; '' where all rights are there."""
        self._kept: dict[str, dict[str, Claim]] = {}
        """By namespace and uid: pods that wait for rights of ours."""
        self._unplaced: set[str] = set()
        """Pods that had a place before a start, and of whose gang nothing is known yet."""
        self._rights_at: dict[str, float] = {}
        self._made: list[Gang] = []
        self._asked: dict[str, int] = {}
        """At which look an object was asked last."""
        self._looks = 0
        self._is_settled = False
        """Whether all is weighed that was there after the start."""
        self._news = asyncio.Event()

    # ── hearing ─────────────────────────────────────────────────────────────────────────

    def resume(self, uids: Iterable[str]) -> None:
        """Note the pods that are tasks: nothing else is made of them."""
        for uid in uids:
            self._unplaced.add(uid)
            self.gangs.hold(uid)

    def weigh(self, pod: Pod, is_gone: bool) -> None:
        """Count a pod among those that wait, or not any more."""
        meta = pod.metadata
        if is_gone or pod.is_over or meta.deletion_timestamp or pod.spec.node_name:
            self._drop(f"{meta.namespace}/{meta.name}", meta.uid)
            if meta.uid in self._unplaced and not is_gone and not pod.is_over:
                self._read_or_do(pod)
            return
        self._names[f"{meta.namespace}/{meta.name}"] = meta.uid
        if pod.spec.resource_claims and meta.namespace in self._rules.namespaces:
            self._keep_claims(pod)
            if not self._cluster.devices.listed.is_set():
                self._again[meta.uid] = None
                return
        self._read_or_do(pod)

    def _read_or_do(self, pod: Pod) -> None:
        """Take a pod as it is now; later, where a document of it has to be read."""
        meta = pod.metadata
        if is_hived(pod) and meta.namespace in self._rules.namespaces:
            self._unread.setdefault(meta.namespace, {})[meta.uid] = pod
            self._to_read.set()
        else:
            self._do(pod)

    def _do(self, pod: Pod) -> None:
        if pod.spec.node_name or pod.metadata.deletion_timestamp:
            self._hold(pod)
        else:
            self._claim(pod)

    async def read_on(self) -> None:
        """Read what takes time, for the namespaces by turns, and rest in between."""
        await self._to_read.wait()
        self._to_read.clear()
        while mine := [next(iter(pods.values())) for pods in self._unread.values() if pods]:
            for was in mine:
                pod = self._unread[was.metadata.namespace].pop(was.metadata.uid, None)
                if pod is None:
                    continue
                began = perf_counter()
                self._do(pod)
                await asyncio.sleep(REST * (perf_counter() - began))

    def _claim(self, pod: Pod) -> None:
        offered = Offered(f"{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.uid)
        try:
            claim = claim_of(pod, self._rules)
        except Flaw as flaw:
            self._flaw(offered, Word(flaw.reason, str(flaw)))
        except Exception as error:  # whatever a pod says, others are placed
            log.exception("a pod is not understood", pod=offered.name)
            self._flaw(offered, Word("NotUnderstood", f"it is not understood: {error!r}"))
        else:
            self._put(claim)

    def _hold(self, pod: Pod) -> None:
        """Learn of which gang a pod is that has a place since before the start."""
        self._unplaced.discard(pod.metadata.uid)
        with contextlib.suppress(Flaw):  # it has its place, whatever it may claim by now
            self.gangs.hold(pod.metadata.uid, claim_of(pod, self._bare).gang)
            self._news.set()

    def _put(self, claim: Claim) -> None:
        namespace = claim.name.partition("/")[0]
        lacking = self._lacking[namespace]
        if lacking and claim.uid not in self.gangs.waiting():  # what waits keeps its turn
            self._kept.setdefault(namespace, {})[claim.uid] = claim
            self._flaw(Offered(claim.name, claim.uid), Word("RightsMissing", lacking))
            return
        self._flaws.pop(claim.uid, None)
        self.gangs.put(claim)
        if claim.uid in self._unplaced:
            self._unplaced.discard(claim.uid)
            self.gangs.hold(claim.uid)
        self._news.set()

    def _flaw(self, pod: Offered, word: Word) -> None:
        self.gangs.drop(pod.uid)
        self._flaws[pod.uid] = (pod, word)
        self._news.set()
        if pod.name.partition("/")[0] in self._rules.namespaces:
            self.telling.say(pod, word)

    def _drop(self, name: str, uid: str) -> None:
        if self._names.get(name) == uid:
            del self._names[name]
        self._flaws.pop(uid, None)
        self._forget_claims(uid)
        self._unread.get(name.partition("/")[0], {}).pop(uid, None)
        self._kept.get(name.partition("/")[0], {}).pop(uid, None)
        self.gangs.drop(uid)
        self.telling.forget(uid)
        self._news.set()

    def listed(self, there: set[str]) -> None:
        """Note which pods there are: all others are gone."""
        for name, uid in [each for each in self._names.items() if each[1] not in there]:
            self._drop(name, uid)

    def let_go(self, uid: str) -> None:
        """Note that a pod is no task any more."""
        self._unplaced.discard(uid)
        self.gangs.let_go(uid)
        self._news.set()

    # ── handing over ────────────────────────────────────────────────────────────────────

    async def next(self) -> Sequence[Offer]:
        """Wait for gangs that are whole, and return them."""
        while not self._made:
            await self._news.wait()
            self._news.clear()
            began = perf_counter()
            made, words = self.gangs.take()
            self._made += made
            for claim, word in words:
                self.telling.say(Offered(claim.name, claim.uid), word)
            await asyncio.sleep(REST * (perf_counter() - began))
        now, self._made = self._made[:MOST_AT_ONCE], self._made[MOST_AT_ONCE:]
        types = self._types_of()
        return [
            offer_of(gang, self._rules.engine, types)
            for gang in now
            if self.gangs.is_offered(gang.key) is True
        ]

    def is_offered(self, key: str) -> bool | None:
        """Whether an offer still waits for its place; None while that is not known."""
        found = self.gangs.is_offered(key)
        is_read = self._is_settled or not self._is_unread()
        if found or not is_read or UNSURE in self._lacking.values():
            return found or None
        if found is None and self._is_settled and self.gangs.is_weighed:
            return False  # it was not among what was there after the start, or is gone since
        self._is_settled = self._is_settled or found is False
        return found

    def _is_unread(self) -> bool:
        """Whether pods that wait are yet to be weighed; those with a flaw were."""
        return (
            not self._cluster.devices.listed.is_set()
            or any(self._unread.values())
            or any(uid not in self._flaws for uid in self._again)
        )

    def why_not(self, name: str) -> str:
        """Return why a pod is no job yet; '' where nothing is known of it."""
        uid = self._names.get(name, "")
        flaw = self._flaws.get(uid)
        word = flaw[1] if flaw is not None else self.telling.word_of(uid)
        return word.message if word is not None else ""

    # ── claims ──────────────────────────────────────────────────────────────────────────

    def note_claim(self, name: str) -> None:
        """Note that a claim changed, by NAMESPACE/NAME."""
        self._again |= dict.fromkeys(self._by_claim.get(name, ()))

    async def weigh_claims(self) -> None:
        """Weigh pods again whose claims changed, and those with a flaw where devices did."""
        if not self._cluster.devices.listed.is_set():
            return
        if self._devices_at != self._cluster.version:
            self._devices_at = self._cluster.version
            self._again |= dict.fromkeys(uid for uid in self._claiming if uid in self._flaws)
        pods = [self._claiming[uid][0] for uid in self._again]
        silent: set[str] = set()
        for pod in in_turns(pods, lambda each: each.name.partition("/")[0])[:MOST_AGAIN]:
            namespace, _, name = pod.name.partition("/")
            if namespace in silent:
                continue
            try:
                found = await self._client.within(namespace).pod(name)
            except BackendError as error:
                log.warning("a pod is considered later", pod=pod.name, why=str(error))
                # Who rules a namespace may take our rights there away: others do not wait.
                silent.add(namespace)
                if isinstance(error, Denied):
                    word = Word("RightsMissing", f"Allotment may not read it: {error}")
                    self._flaw(pod, word)
                continue
            if pod.uid in self._again:  # nothing was heard of it meanwhile
                del self._again[pod.uid]
                if found is not None and found.metadata.uid == pod.uid:
                    self.weigh(found, False)

    def _keep_claims(self, pod: Pod) -> None:
        meta = pod.metadata
        self._forget_claims(meta.uid)
        names = _claims_of(pod)
        self._claiming[meta.uid] = Offered(f"{meta.namespace}/{meta.name}", meta.uid), names
        for name in names:
            self._by_claim.setdefault(name, set()).add(meta.uid)

    def _forget_claims(self, uid: str) -> None:
        self._again.pop(uid, None)
        for name in self._claiming.pop(uid, (None, set[str]()))[1]:
            self._by_claim[name].discard(uid)
            if not self._by_claim[name]:
                del self._by_claim[name]

    # ── rights ──────────────────────────────────────────────────────────────────────────

    async def look_at_rights(self) -> None:
        """Look whether we may do what placing takes, in each namespace whose pods we place.

        Where a right is missing no pod is offered, so none is placed and then not bound.
        """
        for namespace, lacking in list(self._lacking.items()):
            if lacking == "" and monotonic() < self._rights_at.get(namespace, 0.0):
                continue
            if lacking not in ("", UNSURE) and not self._kept.get(namespace):
                continue
            client = self._client.within(namespace)
            needed = [right for right in FOREIGN if right.is_needed]
            missing = [right for right in needed if not await client.may(right)]
            names = ", ".join(map(str, missing))
            self._rights_at[namespace] = monotonic() + RIGHTS_S
            self._set_lacking(
                namespace,
                f"Allotment has no right to {names} in namespace {namespace}: `allot doctor` "
                "says how it gets them"
                if missing
                else "",
            )

    def _set_lacking(self, namespace: str, lacking: str) -> None:
        if self._lacking[namespace] == lacking:
            return
        self._lacking[namespace] = lacking
        for claim in list(self._kept.pop(namespace, {}).values()):
            self._put(claim)

    # ── asking ──────────────────────────────────────────────────────────────────────────

    async def ask_sizes(self) -> None:
        """Ask objects how many pods the gangs have that wait for them."""
        unknown = self.gangs.unknown_sources()
        self._asked = {source: self._asked.get(source, 0) for source in unknown}
        self._looks += 1
        longest = sorted(unknown, key=self._asked.__getitem__)
        for source in in_turns(longest, _namespace_in)[:MOST_ASKED]:
            self._asked[source] = self._looks
            try:
                self.gangs.learn(source, await self._size(source))
            except BackendError as error:  # not known yet, and asked again
                log.warning("the size of a gang is not known yet", at=source, why=str(error))
            self._news.set()

    async def _size(self, source: str) -> Size:
        """Return what an object says of the size of its gangs. Raises BackendError."""
        path, _, part = source.partition("#")
        *_, kind, name = path.split("/")
        try:
            said = None
            for version in VERSIONS if "/*/" in path else ("",):
                said = said or await self._client.object(path.replace("*", version))
            return size_in(said, part, kind, name)
        except Denied as error:
            return f"{kind} {name} cannot be read: {error}"


def _no_matter(pod: Pod) -> Wanted:  # noqa: ARG001 - whatever it claims
    return Wanted()


def _claims_of(pod: Pod) -> set[str]:
    """Return the claims that a pod names, or has by its templates, by NAMESPACE/NAME."""
    both = (*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ()))
    names = {each.resource_claim_name for each in both[:MOST_NAMES]}
    return {f"{pod.metadata.namespace}/{name}" for name in names if name}


def _namespace_in(source: str) -> str:
    return source.partition("/namespaces/")[2].partition("/")[0]
