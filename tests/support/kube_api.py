"""An API server of Kubernetes in memory, in the place of the connections to one."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from allotment.backends.http import Answer, Login
from allotment.model.errors import EngineAway
from tests.support.kube_devices import API, DeviceApi

NODES, ALL_PODS, PODS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/ns/pods"
SECRETS = "/api/v1/namespaces/ns/secrets"
LOST = 0
"""In `says`: what is asked is done, and the answer does not arrive."""
Tree = dict[str, Any]


class KubeApi:
    """Keeps nodes and pods. A pod on a node stays after its deletion until `finish`."""

    def __init__(self) -> None:
        self.nodes: dict[str, Tree] = {}
        self.pods: dict[str, Tree] = {}
        """By namespace/name."""
        self.secrets: dict[str, Tree] = {}
        self.objects: dict[str, Tree] = {"/api/v1/namespaces/ns": {"kind": "Namespace"}}
        """What else there is, by path."""
        self.because = ""
        """Why it says no, in its words."""
        self.says: dict[tuple[str, str], list[int]] = defaultdict(list)
        """What is answered next instead of the truth, by method and path."""
        self.forbids: set[tuple[str, str]] = set()
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        """What happens just before something asked is done."""
        self.asked: list[tuple[str, str]] = []
        self.graces: list[int] = []
        self.headers: dict[str, str] = {}
        self.conditions: dict[str, Tree] = {}
        """What was last written of the conditions of a pod, by namespace/name."""
        self.patched: dict[str, Tree] = {}
        """How other objects were changed last, by path."""
        self.forgotten = 0
        self.allows = True
        """Whether we have the rights that are asked for."""
        self.page = 0
        """How many objects a page of a list has; 0 for all."""
        self.tokens: list[tuple[str, str]] = []
        """Which pages were asked for, by path."""
        self.devices = DeviceApi(self._tell)
        self.devices.pods = self.pods
        self._watches: list[tuple[str, asyncio.Queue[Tree]]] = []
        self._numbers = count(1)

    # ── in the place of Http ────────────────────────────────────────────────────────────

    def opened(self, server: str, login: Login, server_name: str) -> "KubeApi":
        assert server
        return self

    @property
    def credentials(self) -> "KubeApi":
        return self

    def forget(self) -> None:
        self.forgotten += 1

    def close(self) -> None:
        """There is nothing to close."""

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Answer:
        """Answer as the API server does."""
        await asyncio.sleep(0)
        what = (method, urlsplit(path).path)
        self.asked.append(what)
        if act := self.before.pop(what, None):
            act()
        said = self.says[what].pop(0) if self.says[what] else 200
        if what in self.forbids:
            said = 403
        token = parse_qs(urlsplit(path).query).get("continue", ["0"])[0]
        self.tokens.append((what[1], token))
        if said not in (200, LOST):
            return self._no(said, self.because or " ".join(what))
        do = self._of_devices if f"{what[1]}/".startswith(f"{API}/") else self._done
        answer = do(*what, json.loads(body or b"null"), int(token))
        if said == LOST:
            raise EngineAway("the connection broke")
        return answer

    @contextlib.asynccontextmanager
    async def open(
        self, path: str, silence_s: float | None
    ) -> AsyncGenerator[tuple[Answer, AsyncIterator[bytes]]]:
        """Tell changes from now on; of a log, nothing."""
        place = urlsplit(path)
        queue: asyncio.Queue[Tree] = asyncio.Queue()
        base, is_watch = place.path, "watch" in parse_qs(place.query)
        assert silence_s is not None or not is_watch
        if ("GET", base) in self.forbids:
            yield self._no(403, base), _pieces([])
            return
        if not is_watch:
            yield Answer(200, {}), _pieces([])
            return
        self._watches.append((base, queue))
        yield Answer(200, {}), self._changes(queue)

    async def _changes(self, queue: "asyncio.Queue[Tree]") -> AsyncIterator[bytes]:
        while True:
            yield json.dumps(await queue.get()).encode() + b"\n"

    # ── what others do ──────────────────────────────────────────────────────────────────

    def add_node(self, name: str, **spec: Any) -> None:
        """Add a node with four devices, or change how it is."""
        is_there = name in self.nodes
        self.nodes[name] = {
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self._tell("MODIFIED" if is_there else "ADDED", NODES, self.nodes[name])

    def hold(self, name: str, *images: str) -> None:
        """Let a node have these images, by their names."""
        told = [{"names": [image], "sizeBytes": 1} for image in images]
        status = {**self.nodes[name]["status"], "images": told}
        node = self.nodes[name] = {**self.nodes[name], "status": status}
        self._tell("MODIFIED", NODES, node)

    def silence_node(self, name: str) -> None:
        """Let a node be one of which nobody hears."""
        unknown = {"type": "Ready", "status": "Unknown"}
        node = self.nodes[name] = {**self.nodes[name], "status": {"conditions": [unknown]}}
        self._tell("MODIFIED", NODES, node)

    def add_pod(self, namespace: str, name: str, node: str) -> None:
        """Add a pod of others that asks for a device."""
        asked = {"requests": {"nvidia.com/gpu": "1"}}
        spec = {"nodeName": node, "containers": [{"resources": asked}]}
        self._add_pod(namespace, {"metadata": {"name": name}, "spec": spec})

    def our_pod(self, namespace: str = "ns") -> Tree:
        """Return the only pod of a namespace, ours if none is named."""
        (pod,) = (pod for at, pod in self.pods.items() if at.startswith(f"{namespace}/"))
        return pod

    def put_on_node(self, node: str) -> None:
        """Let a binding arrive."""
        self.our_pod()["spec"]["nodeName"] = node

    def run(self) -> None:
        """Let our pod's container begin."""
        pod = self.our_pod()
        statuses = [{"name": "task", "state": {"running": {"startedAt": "now"}}}]
        pod["status"] = {"phase": "Running", "containerStatuses": statuses}
        self._tell_pod("MODIFIED", pod)

    def finish(
        self, code: int, reason: str = "Error", message: str = "", namespace: str = "ns"
    ) -> None:
        """Let our pod's task end; where it is being deleted, its pod is gone then."""
        pod = self.our_pod(namespace)
        state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
        statuses = [{"name": "task", "state": state}]
        pod["status"] = {"phase": "Failed", "containerStatuses": statuses}
        self._tell_pod("MODIFIED", pod)
        if pod["metadata"].get("deletionTimestamp"):
            self.remove()

    def remove(self) -> None:
        """Take our pod away at once."""
        self.take_away(f"ns/{self.our_pod()['metadata']['name']}")

    def take_away(self, at: str) -> None:
        """Take a pod away at once."""
        self._tell_pod("DELETED", self.pods.pop(at))

    def offer(
        self, name: str, namespace: str = "team", scheduler: str = "allotment", **words: str
    ) -> str:
        """Add a pod for us to place; return its uid."""
        spec = {"schedulerName": scheduler, "containers": []}
        meta = {"name": name, "annotations": words}
        self._add_pod(namespace, {"metadata": meta, "spec": spec})
        return self.pods[f"{namespace}/{name}"]["metadata"]["uid"]

    def show(self, at: str, phase: str) -> None:
        """Let a pod be in another phase."""
        self.pods[at]["status"] = {"phase": phase}
        self._tell_pod("MODIFIED", self.pods[at])

    # ── what is asked ───────────────────────────────────────────────────────────────────

    def _done(self, method: str, path: str, document: Tree, start: int) -> Answer:
        namespace, base, rest = _place_of(path)
        at = f"{namespace}/{base}"
        match method:
            case "GET" if path == NODES:
                return self._list(list(self.nodes.values()), start)
            case "GET" if path in (ALL_PODS, PODS):
                inside = "ns/" if path == PODS else ""
                pods = [p for at, p in self.pods.items() if at.startswith(inside)]
                return self._list(pods, start)
            case "GET":
                pod = self.pods.get(at) or self.objects.get(path)
                return _yes(pod) if pod else self._no(404, f"no pod {base}")
            case "POST":
                return self._posted(path, at, rest, document)
            case "PATCH" if rest == "status":
                self.conditions[at] = document["status"]["conditions"][0]
                return _yes({})
            case "PATCH":
                self.patched[path] = document
                return _yes({})
            case "DELETE":
                return self._deleted(at, document)
            case _:
                return _yes({})

    def _of_devices(self, method: str, path: str, document: Tree, start: int) -> Answer:
        if not self.devices.is_there:
            return self._no(404, "there is no such resource")
        found = self.devices.lists(path) if method == "GET" else None
        if found is not None:
            return self._list(found, start)
        status, said = self.devices.done(method, path, document)
        return _yes(said) if status < 300 else self._no(status, said["message"])

    def _list(self, found: list[Tree], start: int) -> Answer:
        size = self.page or len(found) + 1
        meta = {"resourceVersion": "1"}
        if start + size < len(found):
            meta["continue"] = str(start + size)
        return _yes({"metadata": meta, "items": found[start : start + size]})

    def _posted(self, path: str, at: str, part: str, document: Tree) -> Answer:
        if path.endswith("/pods"):
            namespace = path.split("/")[-2]
            new = f"{namespace}/{document['metadata']['name']}"
            is_there = new in self.pods
            return self._no(409, "there") if is_there else self._made(namespace, document)
        if path == SECRETS:
            new = document["metadata"]["name"]
            return self._no(409, "there") if new in self.secrets else self._hidden(document)
        if part == "binding":
            return self._bound(at, document)
        if part == "eviction":
            return self._deleted(at, document["deleteOptions"])
        is_review = path.endswith("selfsubjectaccessreviews")
        return _yes({"status": {"allowed": self.allows}} if is_review else {})

    def _hidden(self, document: Tree) -> Answer:
        self.secrets[document["metadata"]["name"]] = document
        return _yes({})

    def _made(self, namespace: str, document: Tree) -> Answer:
        self._add_pod(namespace, document)
        return _yes(document)

    def _add_pod(self, namespace: str, document: Tree) -> None:
        number = next(self._numbers)
        meta = {"namespace": namespace, "uid": f"uid-{number}", "resourceVersion": str(number)}
        document["metadata"] |= meta
        self.pods[f"{namespace}/{document['metadata']['name']}"] = document
        self._tell_pod("ADDED", document)

    def _bound(self, at: str, document: Tree) -> Answer:
        pod = self.pods.get(at)
        if pod is None:
            return self._no(404, f"no pod {at}")
        if document["metadata"]["uid"] != pod["metadata"]["uid"]:
            return self._no(409, "the uid is another")
        if pod["spec"].get("nodeName"):
            return self._no(409, "bound already")
        pod["spec"]["nodeName"] = document["target"]["name"]
        self._tell_pod("MODIFIED", pod)
        return _yes({})

    def _deleted(self, at: str, how: Tree) -> Answer:
        pod, grace_s = self.pods.get(at), int(how.get("gracePeriodSeconds", 30))
        if pod is None:
            return self._no(404, f"no pod {at}")
        if how.get("preconditions", pod["metadata"])["uid"] != pod["metadata"]["uid"]:
            return self._no(409, "the uid is another")
        self.graces.append(grace_s)
        pod["metadata"]["deletionTimestamp"] = "now"
        if grace_s and pod["spec"].get("nodeName"):
            self._tell_pod("MODIFIED", pod)
        else:
            self.take_away(at)
        return _yes(pod)

    def _tell_pod(self, type_: str, pod: Tree) -> None:
        for path in (ALL_PODS, f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"):
            self._tell(type_, path, pod)

    def _tell(self, type_: str, path: str, found: Tree) -> None:
        for base, queue in self._watches:
            if base == path:
                queue.put_nowait({"type": type_, "object": json.loads(json.dumps(found))})

    def _no(self, status: int, message: str) -> Answer:
        return Answer(status, self.headers, json.dumps({"message": message}).encode())


def _place_of(path: str) -> tuple[str, str, str]:
    """Return of which pod a path is: its namespace, its name, and which part of it."""
    namespace, _, rest = path.removeprefix("/api/v1/namespaces/").partition("/")
    name, _, part = rest.removeprefix("pods").removeprefix("/").partition("/")
    return namespace, name, part


def _yes(tree: Tree) -> Answer:
    return Answer(200, {}, json.dumps(tree).encode())


async def _pieces(found: list[bytes]) -> AsyncIterator[bytes]:
    for piece in found:
        yield piece
