"""What is asked of the API server. Thin: what it says is read elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from copy import copy
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from allotment.backends.contact import Contact
from allotment.backends.http import Answer, Http, Quiet
from allotment.backends.kubernetes.device_objects import API, PROTECTION, ResourceClaim
from allotment.backends.kubernetes.kubeconfig import Access, Credentials
from allotment.backends.kubernetes.objects import KubeNode, Pod, read
from allotment.backends.kubernetes.request import CONTAINER, EVICTIONS, eviction_of
from allotment.backends.kubernetes.rights import Right
from allotment.model.errors import BackendError, EngineAway

PAGE = 500
TRIES = 4
PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0
LATE_S = 75.0
"""For so long what nobody answered may still be carried out: API servers give up after 60 s."""
BUSY = frozenset({429, 500, 502, 503, 504})
"""What a server answers that may do better in a moment."""
UNREADABLE, UNKNOWN, FORBIDDEN, CROWDED = 400, 401, 403, 429
JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GONE = 410
LOG_SILENCE_S = None
"""A task may write nothing for as long as it likes."""

Query = Mapping[str, str | int]
NO_QUERY: Query = {}


class Denied(BackendError):
    """The API server said no. `status` is HTTP's number."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Said(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """A part of a list, with each object as it came."""

    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class Change(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Client:
    """Asks one API server, in one namespace. Whatever it asks may be asked twice."""

    def __init__(self, access: Access, namespace: str, contact: Contact) -> None:
        self.http = Http(access.server, Credentials(access), access.server_name)
        self._lists = Http(access.server, self.http.credentials, access.server_name)
        """Beside what is asked of pods: that may be very much, and waits for what lists say."""
        self.namespace = namespace
        self._contact = contact
        self._allowed: set[str] = set()
        """What was ever allowed of our own pods, by method."""

    def close(self) -> None:
        self.http.close()
        self._lists.close()

    def within(self, namespace: str) -> "Client":
        """Return the same client for another namespace; itself for ''."""
        if not namespace or namespace == self.namespace:
            return self
        other = copy(self)
        other.namespace = namespace
        return other

    # ── asking ──────────────────────────────────────────────────────────────────────────

    async def ask(
        self, method: str, path: str, document: object = None, kind: str = JSON
    ) -> bytes:
        """Ask, and return what is said. Raises Denied, EngineAway, BackendError."""
        body = b"" if document is None else msgspec.json.encode(document)
        return await self._answered(self.http, method, path, body, kind)

    async def _answered(
        self, http: Http, method: str, path: str, body: bytes = b"", kind: str = JSON
    ) -> bytes:
        """Ask over some connections, again where that may help. Raises as `ask`."""
        pause = PAUSE_S
        for more in reversed(range(TRIES)):
            answer = await self._once(http, method, path, body, kind)
            if answer.status < 300:
                self._note_right(method, path)
                return answer.body
            if answer.status == UNKNOWN and more == TRIES - 1:
                self.http.credentials.forget()
            elif answer.status not in BUSY:
                raise self._refusal(method, path, answer)
            elif more:
                if not _is_there(answer):
                    self._contact.missed(str(refusal(answer)))
                told = answer.headers.get("retry-after", "")
                wanted = float(told) if told.isdecimal() else pause
                await asyncio.sleep(min(wanted, LONGEST_PAUSE_S))
                pause = min(pause * 2, LONGEST_PAUSE_S)
            elif self._is_making(method, path) and _is_of_webhook(answer):
                raise refusal(answer)
            else:
                raise self._away(answer)
        raise AssertionError("the last try returns or raises")

    def _away(self, answer: Answer) -> EngineAway:
        why = str(refusal(answer))
        self._contact.missed(why)
        return EngineAway(why)

    def _refusal(self, method: str, path: str, answer: Answer) -> BackendError:
        """Return what a refusal means: no, or not now.

        A login runs out, and rights are taken and given again while someone applies them:
        what is asked of our own pods then, a stop above all, is not dropped for that.
        """
        if answer.status == UNKNOWN:
            return self._away(answer)
        denied = refusal(answer)
        if answer.status != FORBIDDEN or not self._is_of_own_pod(method, path):
            return denied
        if method in self._allowed:
            return EngineAway(str(denied))
        return Denied(FORBIDDEN, f"{denied}; `allot doctor` names the rights that are missing")

    def _is_of_own_pod(self, method: str, path: str) -> bool:
        """Whether a pod of ours is looked at or ended: only rights can forbid that, where of a
        new one a quota or an admission may say no."""
        return method in ("GET", "DELETE") and path.startswith(f"{self._pods()}/")

    def _is_making(self, method: str, path: str) -> bool:
        """Whether a pod or a Secret of ours is made: then nothing is there yet to wait for."""
        return method == "POST" and path in (self._pods(), self._secrets())

    def _note_right(self, method: str, path: str) -> None:
        if self._is_of_own_pod(method, path):
            self._allowed.add(method)

    async def _once(self, http: Http, method: str, path: str, body: bytes, kind: str) -> Answer:
        try:
            answer = await http.ask(method, path, body, kind)
        except EngineAway as error:
            self._contact.missed(str(error))
            raise
        if _is_of_webhook(answer) or (answer.status not in BUSY and answer.status != UNKNOWN):
            self._contact.answered()
        return answer

    def _pods(self, name: str = "", part: str = "", words: Query = NO_QUERY) -> str:
        return _path(f"/api/v1/namespaces/{self.namespace}/pods", name, part, words)

    def _secrets(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    # ── pods ────────────────────────────────────────────────────────────────────────────

    async def make_pod(self, pod: Mapping[str, Any]) -> Pod:
        """Make a pod, or return the one of that name that is there already."""
        try:
            return _pod(await self.ask("POST", self._pods(), pod))
        except Denied as error:
            # Where there is no namespace, rights are missing first.
            if error.status in (FORBIDDEN, 404) and await self.has_namespace() is False:
                raise Denied(404, NO_NAMESPACE.format(self.namespace)) from error
            if error.status != 409:
                raise
            return _pod(await self.ask("GET", self._pods(pod["metadata"]["name"])))

    async def pod(self, name: str) -> Pod | None:
        """Return a pod; None where there is none of that name."""
        try:
            return _pod(await self.ask("GET", self._pods(name)))
        except Denied as error:
            if error.status == 404:
                return None
            raise

    async def make_secret(self, secret: Mapping[str, Any]) -> None:
        """Make a Secret, unless it is there already."""
        try:
            await self.ask("POST", self._secrets(), secret)
        except Denied as error:
            if error.status != 409:
                raise

    async def keep_map(self, name: str, data: Mapping[str, str]) -> None:
        """Write a ConfigMap of ours, be it there already or not. Raises as `ask`."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        try:
            await self.ask("PATCH", f"{path}/{name}", {"data": data}, MERGE)
        except Denied as error:
            if error.status != 404:
                raise
            await self.ask("POST", path, {"metadata": {"name": name}, "data": data})

    async def annotate_pod(self, name: str, uid: str, words: Mapping[str, str]) -> bool:
        """Write annotations on a pod. Whether it was there. Raises as `ask`."""
        document = {"metadata": {"uid": uid, "annotations": words}}
        try:
            await self.ask("PATCH", self._pods(name), document, MERGE)
        except Denied as error:
            if error.status in (404, 409):  # gone, or another of that name is there
                return False
            raise
        return True

    async def bind(self, name: str, binding: Mapping[str, Any]) -> None:
        """Put a pod on a node. One that is there already is fine; on another is not."""
        try:
            await self.ask("POST", self._pods(name, "binding"), binding)
        except Denied as error:
            there = await self.pod(name) if error.status == 409 else None
            if there is None or there.spec.node_name != binding["target"]["name"]:
                raise

    async def delete_pod(self, name: str, deletion: Mapping[str, Any]) -> bool:
        """End a pod. Whether it was there to be ended."""
        try:
            await self.ask("DELETE", self._pods(name), deletion)
        except Denied as error:
            if error.status in (404, 409):  # gone, or another of that name is there
                return False
            raise
        return True

    async def evict_pod(self, name: str, uid: str, grace_s: int) -> str:
        """End a pod as far as disruption budgets allow; return which does not, '' for none.

        One that is gone is fine. Raises Denied, EngineAway.
        """
        answer = await self._evicted(EVICTIONS[0], name, uid, grace_s)
        if answer.status == UNREADABLE:
            answer = await self._evicted(EVICTIONS[1], name, uid, grace_s)
        if answer.status == CROWDED:
            return str(refusal(answer))
        if answer.status in BUSY or answer.status == UNKNOWN:
            raise self._away(answer)
        if answer.status >= 300 and answer.status not in (404, 409):
            raise refusal(answer)
        return ""

    async def _evicted(self, version: str, name: str, uid: str, grace_s: int) -> Answer:
        body = msgspec.json.encode(eviction_of(version, name, uid, grace_s))
        return await self._once(self.http, "POST", self._pods(name, "eviction"), body, JSON)

    async def note_condition(self, name: str, uid: str, condition: Mapping[str, str]) -> None:
        """Write a condition of a pod's status. Raises Denied, EngineAway."""
        document = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self.ask("PATCH", self._pods(name, "status"), document, STRATEGIC)

    async def note_event(self, event: Mapping[str, Any]) -> None:
        """Write an event. Raises Denied, EngineAway."""
        await self.ask("POST", f"/api/v1/namespaces/{self.namespace}/events", event)

    async def object(self, path: str) -> bytes | None:
        """Return an object as it is written; None where there is none. Raises as `ask`."""
        try:
            return await self.ask("GET", path)
        except Denied as error:
            if error.status == 404:
                return None
            raise

    @contextlib.asynccontextmanager
    async def log(
        self, name: str, since: str, *, follow: bool
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Read, or follow, what a pod writes, each line behind its time. Raises Denied,
        EngineAway."""
        words = {"container": CONTAINER, "timestamps": "true"}
        words |= {"follow": "true"} if follow else {}
        path = self._pods(name, "log", words | ({"sinceTime": since} if since else {}))
        async with self.http.open(path, LOG_SILENCE_S) as (answer, pieces):
            if answer.status != 200:
                body = b"".join([piece async for piece in pieces])
                raise refusal(msgspec.structs.replace(answer, body=body))
            yield pieces

    # ── devices by name ─────────────────────────────────────────────────────────────────

    async def has_named_devices(self) -> bool:
        """Whether there is resource.k8s.io/v1 for us. Raises Denied, EngineAway."""
        try:
            await self.ask("GET", API)
        except Denied as error:
            if error.status in (FORBIDDEN, 404):
                return False
            raise
        return True

    async def make_claim(self, claim: Mapping[str, Any]) -> ResourceClaim:
        """Make a ResourceClaim, or return the one of that name that is there already."""
        try:
            return _claim(await self.ask("POST", self._claims(), claim))
        except Denied as error:
            if error.status != 409:
                raise
            return _claim(await self.ask("GET", self._claims(claim["metadata"]["name"])))

    async def allocate_claim(
        self, claim: ResourceClaim, status: Mapping[str, Any]
    ) -> ResourceClaim:
        """Write what a claim was given. Raises Denied (409) where it was changed meanwhile."""
        meta = claim.metadata
        only = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        document = {"metadata": only, "status": status}
        return _claim(
            await self.ask("PATCH", self._claims(meta.name, "status"), document, MERGE)
        )

    async def claim(self, name: str) -> ResourceClaim | None:
        """Return a claim; None where there is none of that name."""
        try:
            return _claim(await self.ask("GET", self._claims(name)))
        except Denied as error:
            if error.status == 404:
                return None
            raise

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Have a claim stay, and be emptied by Kubernetes, for as long as a pod has it: as
        kube-scheduler does. Raises Denied (409) where it was changed meanwhile."""
        meta, there = claim.metadata, claim.metadata.finalizers or ()
        if PROTECTION in there:
            return claim
        only = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        document = {"metadata": {**only, "finalizers": [*there, PROTECTION]}}
        return _claim(await self.ask("PATCH", self._claims(meta.name), document, MERGE))

    async def delete_claim(self, name: str, uid: str = "") -> None:
        """Take a claim away, if it is there; with a uid, just this one."""
        only = {"preconditions": {"uid": uid}} if uid else {}
        how = {"apiVersion": "v1", "kind": "DeleteOptions", **only}
        try:
            await self.ask("DELETE", self._claims(name), how)
        except Denied as error:
            if error.status not in (404, 409):
                raise

    def _claims(self, name: str = "", part: str = "") -> str:
        return _path(f"{API}/namespaces/{self.namespace}/resourceclaims", name, part)

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    async def nodes(self) -> list[KubeNode]:
        """Return all nodes."""
        found: list[KubeNode] = []
        token = ""
        while True:
            page = await self.page("/api/v1/nodes", token)
            found += [node for raw in page.items or () if (node := read(raw, KubeNode))]
            token = page.metadata.next
            if not token:
                return found

    async def cordon(self, node: str, *, closed: bool, note: str | None) -> None:
        """Have Kubernetes start nothing new on a node, or start again; with a note why."""
        document = {
            "spec": {"unschedulable": closed or None},
            "metadata": {"annotations": {NOTE: note}},
        }
        await self.ask("PATCH", _path("/api/v1/nodes", node), document, MERGE)

    async def patch_node(self, name: str, patch: Sequence[Any]) -> bool:
        """Change a node by a JSON patch; return whether it still was as the patch wants it."""
        try:
            await self.ask("PATCH", _path("/api/v1/nodes", name), patch, JSON_PATCH)
        except Denied as error:
            if error.status not in (404, 409, 422):
                raise
            return False
        return True

    async def node(self, name: str) -> KubeNode | None:
        """Return one node."""
        try:
            return read(await self.ask("GET", _path("/api/v1/nodes", name)), KubeNode)
        except Denied as error:
            if error.status == 404:
                return None
            raise

    # ── lists and what changes ──────────────────────────────────────────────────────────

    async def page(self, path: str, token: str = "", only: str = "") -> Page:
        """Return a part of a list, of objects with `only` these fields. Raises Denied,
        EngineAway."""
        words: Query = {
            "limit": PAGE,
            **({"continue": token} if token else {}),
            **({"fieldSelector": only} if only else {}),
        }
        said = await self._answered(self._lists, "GET", _path(path, words=words))
        try:
            return msgspec.json.decode(said, type=Page)
        except msgspec.DecodeError as error:
            raise BackendError(f"what GET {path} says is not a list: {error}") from error

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, version: str, seconds: int
    ) -> AsyncGenerator[AsyncIterator[Change]]:
        """Follow what changes after a version. Raises Denied (410: list again), EngineAway."""
        words: Query = {"watch": "true", "resourceVersion": version,
                        "timeoutSeconds": seconds, "allowWatchBookmarks": "true"}  # fmt: skip
        try:
            async with self.http.open(_path(path, words=words), SILENCE_S) as (answer, pieces):
                if answer.status != 200:
                    body = b"".join([piece async for piece in pieces])
                    raise self._no_watch(msgspec.structs.replace(answer, body=body))
                self._contact.answered()
                yield _changes(pieces)
        except EngineAway as error:
            if not isinstance(error, Quiet):
                self._contact.missed(str(error))
            raise

    def _no_watch(self, answer: Answer) -> BackendError:
        if answer.status != UNKNOWN:
            return refusal(answer)
        self.http.credentials.forget()
        return EngineAway(str(refusal(answer)))

    # ── what there is and what is allowed ───────────────────────────────────────────────

    async def version(self) -> tuple[int, int]:
        """Return the server's version, such as (1, 31)."""
        said = msgspec.json.decode(await self.ask("GET", "/version"), type=_Version)
        digits = "".join(each for each in said.minor if each.isdecimal())
        return int(said.major or 0), int(digits or 0)

    async def may(self, right: Right) -> bool:
        """Whether we have a right."""
        resource, _, part = right.resource.partition("/")
        asked = {
            "verb": right.verb,
            "resource": resource,
            "subresource": part,
            "group": right.group,
            "namespace": "" if right.everywhere else self.namespace,
        }
        document = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }  # fmt: skip
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        said = msgspec.json.decode(await self.ask("POST", path, document), type=_Review)
        return said.status.allowed

    async def has_namespace(self) -> bool | None:
        """Whether our namespace is there; None where we may not know."""
        try:
            await self.ask("GET", f"/api/v1/namespaces/{self.namespace}")
        except Denied as error:
            return False if error.status == 404 else None
        return True


NO_NAMESPACE = (
    "Kubernetes has no namespace {0}, where its pods are to be: an administrator makes it, "
    "and gives the service its rights there (`allot doctor` says how)"
)
NOTE = "allotment.io/closed"
SILENCE_S = 90.0
"""For longer a watch is not silent: bookmarks come about each minute."""


class _Version(msgspec.Struct, frozen=True):
    major: str = ""
    minor: str = ""


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Allowed = _Allowed()


def _is_there(answer: Answer) -> bool:
    """Whether a server that does not answer requests now is itself well."""
    return answer.status == CROWDED or _is_of_webhook(answer)


def _is_of_webhook(answer: Answer) -> bool:
    """Whether it is an admission webhook that is in trouble, and not the server."""
    return answer.status == 500 and b"failed calling webhook" in answer.body


def refusal(answer: Answer) -> Denied:
    """Return what a server says instead of doing it."""
    try:
        said = msgspec.json.decode(answer.body, type=_Said)
    except msgspec.DecodeError:
        said = _Said(" ".join(answer.body.decode(errors="replace").split())[:300])
    why = said.message or said.reason or "no reason given"
    return Denied(answer.status, f"Kubernetes: {why} (HTTP {answer.status})")


async def _changes(pieces: AsyncIterator[bytes]) -> AsyncIterator[Change]:
    async for line in lines_of(pieces):
        try:
            yield msgspec.json.decode(line, type=Change)
        except msgspec.DecodeError as error:
            raise EngineAway(f"what a watch says is not understood: {error}") from error


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Put lines together, each with its end; the last may have none."""
    kept: list[bytes] = []
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*kept, line, b"\n"))
            kept.clear()
        if rest:
            kept.append(rest)
    if kept:
        yield b"".join(kept)


def _pod(said: bytes) -> Pod:
    pod = read(said, Pod)
    if pod is None or not pod.metadata.uid:
        raise BackendError("Kubernetes says something of a pod that is not understood")
    return pod


def _claim(said: bytes) -> ResourceClaim:
    claim = read(said, ResourceClaim)
    if claim is None or not claim.metadata.uid:
        raise BackendError(
            "Kubernetes says something of a ResourceClaim that is not understood"
        )
    return claim


def _path(base: str, name: str = "", part: str = "", words: Query = NO_QUERY) -> str:
    path = "/".join((base, *(quote(each, safe="") for each in (name, part) if each)))
    return f"{path}?{urlencode(words)}" if words else path
