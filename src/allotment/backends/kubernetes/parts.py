"""What a pod sees of folders that the service shares with the nodes: just what its task may.

A kubelet mounts each part by itself. So whoever may not enter the folders above one reaches
what was mounted, and nothing beside it. Pure.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from posixpath import relpath
from typing import Any

import msgspec

from allotment.model.engines import Ability, EngineSetup
from allotment.service.data.store import FOLDER as DATA
from allotment.service.environments.store import FOLDER as ENVIRONMENTS
from allotment.service.ports import DataMount, GangLaunch

FROM_HOST = "host"
"""Of a path: the node's own folder of that path, such as one on a shared disk."""

Volumes = Mapping[str, str]
"""By path: the PersistentVolumeClaim that is there, or FROM_HOST."""


class Sight(msgspec.Struct, frozen=True):
    """What pods can be shown: whole `volumes`, which each sees, and parts of `shared` ones."""

    volumes: Volumes = {}
    shared: Volumes = {}

    def claim_of(self, path: str) -> tuple[str, str]:
        """Return on which claim a path is, and the path of that; '' twice for none."""
        known = {**self.volumes, **self.shared}
        place = above(path, known)
        return known.get(place, ""), place

    def parts(self, gang: GangLaunch) -> list[DataMount]:
        """Return what is mounted for a gang besides the volumes: what the service named, never
        what a user did, since a kubelet asks nobody's rights."""
        shown = [DataMount(path, path) for path in gang.kept]
        if gang.code:
            shown.append(DataMount(gang.code, gang.code, write=True))
        own = (part for part in shown if not above(part.source, self.volumes))
        return [*own, *gang.data]

    def why_not(self, mounts: Sequence[DataMount]) -> str:
        """Return why some folders cannot be mounted in pods; '' where they can."""
        for mount in mounts:
            if not self.claim_of(mount.source)[0]:
                return f"nodes do not see {mount.source}, as far as `shared` of the engine says"
            if ":" in mount.at:
                return f"{mount.at} has a colon, which Kubernetes takes in no path of a mount"
            if place := above(mount.at, self.volumes):
                return f"{mount.at} is in {place}, which all pods share: name a path elsewhere"
        return ""


def sight_of(setup: EngineSetup) -> Sight:
    """Return what pods of an engine can be shown."""
    return Sight(dict(setup.volumes), dict(setup.shared))


def abilities_by(setup: EngineSetup, kept: Path) -> frozenset[Ability]:
    """Return what tasks of an engine can be given of what the service keeps in a folder."""
    sight = sight_of(setup)
    sees = {
        Ability.ENVIRONMENTS: sight.claim_of(f"{kept.absolute()}/{ENVIRONMENTS}")[0],
        Ability.DATASETS: sight.claim_of(f"{kept.absolute()}/{DATA}")[0],
        Ability.FOLDERS: sight.volumes or sight.shared,
        Ability.VERSIONS: above(f"{kept.absolute()}/outputs", sight.volumes),
    }
    return frozenset(ability for ability, seen in sees.items() if seen)


class Mounts:
    """The mounts of a pod, and the volumes that they are of."""

    def __init__(self, volumes: Volumes) -> None:
        self.mounts: list[dict[str, Any]] = []
        self.places: list[dict[str, Any]] = []
        self._claims: dict[str, str] = {}
        """By what a volume is of: its name. A kubelet wants a claim only once in a pod."""
        for number, (path, claim) in enumerate(sorted(volumes.items())):
            self._add(f"v{number}", path, claim)
            self.mounts.append({"name": self._claims[_key(path, claim)], "mountPath": path})

    def show(self, part: DataMount, claim: str, place: str) -> None:
        """Mount a part of what the service shares.

        On the nodes' own disk its folder has to be there: a kubelet would make what it lacks.
        """
        path = part.source if claim == FROM_HOST else place
        if _key(path, claim) not in self._claims:
            self._add(f"s{len(self._claims)}", path, claim)
        below = relpath(part.source, path)
        self.mounts.append(
            {
                "name": self._claims[_key(path, claim)],
                "mountPath": part.at,
                "readOnly": not part.write,
                **({} if below == "." else {"subPath": below}),
            }
        )

    def _add(self, name: str, path: str, claim: str) -> None:
        if _key(path, claim) in self._claims:
            return
        host = {"hostPath": {"path": path, "type": "Directory"}}
        kept = {"persistentVolumeClaim": {"claimName": claim}}
        self.places.append({"name": name, **(host if claim == FROM_HOST else kept)})
        self._claims[_key(path, claim)] = name


def _key(path: str, claim: str) -> str:
    return path if claim == FROM_HOST else f"claim {claim}"


def above(path: str, places: Volumes) -> str:
    """Return the deepest of some folders that a path is in; '' for none."""
    for place in sorted(places, key=len, reverse=True):
        if path == place or path.startswith(f"{place.rstrip('/')}/"):
            return place
    return ""
