"""What `allot doctor` looks at where jobs run as pods of a Kubernetes cluster."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from allotment.backends.kubernetes.versions import NEWEST, Version, why_too_old
from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.words import count
from allotment.model.cells import CellType
from allotment.model.cells_by_label import levels_in, made_of, settled
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BackendError

if TYPE_CHECKING:
    from allotment.backends.kubernetes.client import Client
    from allotment.backends.kubernetes.inventory import Inventory
    from allotment.backends.kubernetes.objects import KubeNode
    from allotment.backends.kubernetes.rights import Right

CONFIG = "config.yaml"
"""The first that is known to work, and the last whose changes were looked at."""
MOST_NAMED = 5
MOST_MODES = 20
DRA, COUNTED = "DRA, each by its name", "counted, and picked by the kubelet"
VISIBLE = "visible, told to each pod by NVIDIA_VISIBLE_DEVICES"
NO_PLUGIN = "While a pod of others has one of it, all devices of the node count as used."
PLAIN = 'Make one with a plain selector, and label it `allotment.io/devices: "true"`.'
SUSPENDING = (
    "no pod is suspended so that others have its devices: its kubelet counts its CPU and "
    "memory as long as it is there, and its devices too, but for those of `visible` nodes"
)
ODD = "Nobody is guaranteed them. Correct their labels, or add a type of that size."
CONTRADICTS = "It takes no new tasks until labels and cells agree; what runs there runs on."
SAVING = "Have jobs save checkpoints, and make room by them: `on_eviction: requeue`."
PATIENCE_S = 20.0
MANIFESTS = "`allot kubernetes manifests | kubectl apply -f -` gives the account all it needs."


def kubernetes(folder: Path) -> list[Finding]:
    """Return findings on each cluster of the configuration; nothing where there is none."""
    path = folder / CONFIG
    if not path.exists():
        return []
    from allotment.wire.config import cell_types_in, tenants_in  # noqa: PLC0415 - only here
    from allotment.wiring.engines import found_last  # noqa: PLC0415

    data = path.read_bytes()
    tenants, types = tenants_in(data, source=str(path)), cell_types_in(data)
    return [
        finding
        for setup in setups_in(folder)
        if setup.type is EngineType.KUBERNETES
        for finding in asyncio.run(
            look(setup, tenants, Cells(types, found_last(folder, setup.name)))
        )
    ]


def setups_in(folder: Path) -> tuple[EngineSetup, ...]:
    """Return the engines that the configuration in a state folder names."""
    from allotment.wire.config import engines_in  # noqa: PLC0415 - only here

    path = folder / CONFIG
    return engines_in(path.read_bytes(), source=str(path)) if path.exists() else ()


class Cells(msgspec.Struct, frozen=True):
    """The cell types that are configured, and the nodes that make cells now."""

    types: tuple[CellType, ...] = ()
    nodes: tuple[Node, ...] = ()


NO_CELLS = Cells()


async def look(
    setup: EngineSetup, tenants: Sequence[str] = (), cells: Cells = NO_CELLS
) -> list[Finding]:
    """Return findings on one cluster, for the tasks of these tenants."""
    from allotment.backends.contact import Contact  # noqa: PLC0415
    from allotment.backends.kubernetes.client import Client  # noqa: PLC0415 - only here
    from allotment.backends.kubernetes.kubeconfig import access_of, found_file  # noqa: PLC0415

    try:
        access = access_of(found_file(setup.kubeconfig), setup.context)
        client = Client(
            access, setup.namespace or access.namespace, Contact("Kubernetes", "pods")
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await _findings(client, access.server, setup, tenants, cells)
        finally:
            client.close()
    except TimeoutError:
        return [Finding("kubernetes", Level.BAD, "it does not answer", away_advice(""))]
    except BackendError as error:
        return [Finding("kubernetes", Level.BAD, str(error), away_advice(str(error)))]


async def _findings(
    client: "Client", server: str, setup: EngineSetup, tenants: Sequence[str], cells: Cells
) -> list[Finding]:
    from allotment.backends.kubernetes.discover import nodes_of  # noqa: PLC0415 - only here
    from allotment.backends.kubernetes.inventory import (  # noqa: PLC0415 - only here
        Inventory,
        looked_at,
    )
    from allotment.backends.kubernetes.rights import (  # noqa: PLC0415 - only here
        FOREIGN,
        FOREIGN_NAMED,
        NAMED,
        RIGHTS,
    )
    from allotment.backends.kubernetes.visible import visible_in  # noqa: PLC0415 - only here

    found = [version_finding(await client.version(), server)]
    found.append(Finding("suspending", Level.NOTE, SUSPENDING, SAVING))
    if await client.has_namespace() is False:
        text = f"there is no namespace {client.namespace}"
        found.append(Finding("namespace", Level.BAD, text, MANIFESTS))
    has_names = await client.has_named_devices()
    needed = (*RIGHTS, *(NAMED if has_names else ()))
    foreign = (*FOREIGN, *(FOREIGN_NAMED if has_names else ()))
    missing = [right for right in needed if not await client.may(right)]
    found += rights_findings(missing, len(needed), client.namespace)
    found += unseen_findings(missing, [namespace for namespace, _ in setup.namespaces])
    found += await _space_findings(client, setup, tenants, needed)
    for namespace, _ in setup.namespaces:
        there = client.within(namespace)
        lacking = [right for right in foreign if not await there.may(right)]
        found += rights_findings(
            lacking, len(foreign), namespace, binding_advice(namespace, client.namespace)
        )
    if not any(right.resource == "nodes" and right.verb == "list" for right in missing):
        lists = [right for right in NAMED if right.everywhere and right.verb != "patch"]
        sees_devices = not any(right in missing for right in lists)
        nodes = await client.nodes()
        inventory = await looked_at(client) if sees_devices else Inventory()
        is_visible = visible_in(setup.visible)
        found += node_findings(nodes, inventory, is_visible)
        found += mode_findings(nodes, inventory, is_visible)
        found += cell_findings(cells, nodes_of(nodes, inventory.on, is_visible, setup.labels))
    found.append(image_finding(setup.image))
    return found


async def _space_findings(
    client: "Client", setup: EngineSetup, tenants: Sequence[str], needed: Sequence["Right"]
) -> list[Finding]:
    """Return whether the namespaces of tenants are there, and what may not be done in them."""
    from allotment.backends.kubernetes.spaces import ALL, space_of  # noqa: PLC0415

    named = dict(setup.tenant_namespaces)
    whose: dict[str, list[str]] = {}
    for tenant in tenants or named.keys() - {ALL}:
        if (space := space_of(tenant, named)) not in ("", client.namespace):
            whose.setdefault(space, []).append(tenant)
    found: list[Finding] = []
    rights = [each for each in needed if not each.everywhere]
    for space, mine in sorted(whose.items()):
        there = client.within(space)
        jobs = " ".join(f"--jobs-of {tenant}={space}" for tenant in mine)
        advice = f"allot kubernetes manifests -n {client.namespace} {jobs} | kubectl apply -f -"
        if await there.has_namespace() is False:
            text = f"there is no namespace {space}, for tasks of {', '.join(mine)}"
            found.append(Finding("namespace", Level.BAD, text, advice))
            continue
        lacking = [right for right in rights if not await there.may(right)]
        found += rights_findings(lacking, len(rights), space, advice)
    wide = [each for each in needed if each.everywhere and each.resource == "pods"]
    for right in [each for each in wide if whose and not await client.may(each)]:
        text = f"no right to {right}: tasks in {', '.join(sorted(whose))} are not started"
        found.append(Finding("rights", Level.BAD, text, MANIFESTS))
    return found


def away_advice(trouble: str) -> str:
    """Return what to do where the cluster does not answer."""
    if "401" in trouble or "Unauthorized" in trouble:
        return "Its token or certificate is not accepted: log in again, and replace it."
    if "kubeconfig" in trouble:
        return "Correct it, or name another under engines: `kubeconfig: FILE`."
    return "Try `kubectl get nodes` with the same kubeconfig. Running tasks continue."


def version_finding(version: Version, server: str) -> Finding:
    """Return a finding on the version of the API server."""
    text = f"version {version[0]}.{version[1]}, {server}"
    if why := why_too_old(version):
        return Finding("kubernetes", Level.BAD, text, f"{why}.")
    if version > NEWEST:
        advice = f"Newer than what was tested ({NEWEST[0]}.{NEWEST[1]}): try it first."
        return Finding("kubernetes", Level.WARN, text, advice)
    return Finding("kubernetes", Level.OK, text)


def binding_advice(namespace: str, own: str) -> str:
    """Return what gives the service its rights in a namespace whose pods it places.

    `own` is where its account is, if that is as the manifests make it.
    """
    return (
        f"kubectl create rolebinding allotment -n {namespace} "
        f"--clusterrole=allotment-foreign-pods --serviceaccount={own}:allotment"
    )


def rights_findings(
    missing: Sequence["Right"], total: int, namespace: str, advice: str = MANIFESTS
) -> Iterator[Finding]:
    """Return each right that is missing, and what does not work without it."""
    if not missing:
        yield Finding("rights", Level.OK, f"all {total} that are needed, namespace {namespace}")
    for right in missing:
        level = Level.BAD if right.is_needed else Level.WARN
        where = "" if right.everywhere else f" in namespace {namespace}"
        yield Finding("rights", level, f"no right to {right}{where}: {right.use}", advice)


def unseen_findings(missing: Sequence["Right"], namespaces: Sequence[str]) -> Iterator[Finding]:
    """Return that pods of others are to be placed, and are not seen."""
    for right in missing:
        if namespaces and right.everywhere and right.resource == "pods":
            text = f"no right to {right}: pods of {', '.join(namespaces)} are not placed"
            yield Finding("rights", Level.BAD, text, MANIFESTS)


def node_findings(
    nodes: Sequence["KubeNode"], inventory: "Inventory", is_visible: Callable[[str], bool]
) -> Iterator[Finding]:
    """Return the nodes that take no tasks, and why."""
    from allotment.backends.kubernetes.discover import (  # noqa: PLC0415 - only here
        nodes_of,
        report_of,
    )

    there = {node.metadata.name: node for node in nodes}
    ours = nodes_of(nodes, inventory.on, is_visible)
    gpus = sum(len(node.devices) for node in ours)
    yield Finding("nodes", Level.OK, f"{count(len(ours), 'node')}, {count(gpus, 'GPU')}")
    closed = {node.name: report_of(node, there[node.name]).closed for node in ours}
    named = [f"{name} ({why})" for name, why in closed.items() if why]
    if named:
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        text = f"closed: {', '.join(named[:MOST_NAMED])}{more}"
        yield Finding("nodes", Level.WARN, text, "`kubectl describe node` says more.")


def mode_findings(
    nodes: Sequence["KubeNode"], inventory: "Inventory", is_visible: Callable[[str], bool]
) -> Iterator[Finding]:
    """Return in which mode the devices of each node are, and what of them is not used."""
    from allotment.backends.kubernetes.discover import (  # noqa: PLC0415 - only here
        device_of,
        nodes_of,
    )

    there = {node.metadata.name: node for node in nodes}
    modes: dict[str, list[str]] = {DRA: [], VISIBLE: [], COUNTED: []}
    for node in nodes_of(nodes, inventory.on, is_visible):
        if named := inventory.on(node.name):
            kinds = ", ".join(sorted({each.of for each in named}))
            modes[DRA].append(f"{node.name} ({len(named)} of {kinds})")
        elif is_visible(node.name):
            modes[VISIBLE].append(f"{node.name} ({len(node.devices) or 'as `nodes` lists'})")
        elif node.devices:
            resource, number = device_of(there[node.name])
            modes[COUNTED].append(f"{node.name} ({number} of {resource})")
    for mode, which in modes.items():
        if which:
            more = len(which) - MOST_MODES
            rest = f" and {more} more" if more > 0 else ""
            yield Finding("devices", Level.OK, f"{mode}: {', '.join(which[:MOST_MODES])}{rest}")
    yield from _twice_findings([there[name] for name in sorted(there) if is_visible(name)])
    yield from _unused_findings(inventory)


def cell_findings(cells: Cells, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Return which cells the labels of nodes make, and which labels contradict them."""
    types = {kind.name: kind for kind in cells.types}
    if not levels_in(types):
        return
    now = settled(cells.types, cells.nodes, nodes)
    made = made_of(types, now.nodes)
    inside = {name for cell in made.cells for name in cell.nodes}
    told = now.contradict.keys() - inside
    odd = made_of(types, [node for node in now.nodes if node.name not in told]).odd
    tally = Counter(cell.type for cell in made.cells)
    words = ", ".join(f"{number} of {kind}" for kind, number in tally.items())
    yield Finding("cells", Level.OK, f"{words or 'none'}, made of nodes by their labels")
    for each in odd[:MOST_NAMED]:
        yield Finding("cells", Level.WARN, f"{each.why}: in no cell of {each.type}", ODD)
    for name, why in sorted(now.contradict.items())[:MOST_NAMED]:
        yield Finding("cells", Level.WARN, f"{name}: {why}", CONTRADICTS)


def _twice_findings(nodes: Sequence["KubeNode"]) -> Iterator[Finding]:
    """Return nodes whose devices a kubelet gives away beside us."""
    from allotment.backends.kubernetes.discover import device_of  # noqa: PLC0415 - only here

    named = [f"{node.metadata.name} ({each})" for node in nodes if (each := device_of(node)[0])]
    if named:
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        text = f"a device plugin gives the same devices away: {', '.join(named[:MOST_NAMED])}"
        yield Finding("devices", Level.WARN, f"{text}{more}", NO_PLUGIN)


def _unused_findings(inventory: "Inventory") -> Iterator[Finding]:
    """Return which devices with names are not used, and why."""
    for (driver, pool), why in sorted(inventory.unused.items())[:MOST_NAMED]:
        text = f"pool {pool} of {driver} is not used: {why}"
        yield Finding("devices", Level.WARN, text, "Its driver may be writing it: look again.")
    for name, why in sorted(inventory.unread.items()):
        text = f"DeviceClass {name} is not used, its selector is not understood: {why}"
        yield Finding("devices", Level.WARN, text, PLAIN)
    shut = [each for node in inventory.nodes() for each in inventory.on(node) if each.shut]
    for each in sorted(shut, key=lambda each: each.id)[:MOST_NAMED]:
        text = f"{each.id} is given to no task: it is tainted {each.shut}"
        yield Finding("devices", Level.WARN, text, "Its driver, or an administrator, set that.")


def image_finding(image: str) -> Finding:
    """Return whether jobs have to name an image."""
    if image:
        return Finding("image", Level.OK, f"{image}, where a job names none")
    text = "none is set: jobs have to name theirs"
    return Finding("image", Level.NOTE, text, "Set one under engines: `image: …`.")
