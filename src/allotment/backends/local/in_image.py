"""A task's request where it brings an image: what of that counts, and what its job says."""

import os
from typing import cast

from allotment.backends.local.cdi.drivers import Drivers
from allotment.backends.local.images.images import Ready
from allotment.backends.local.runner.schema import Dataset, PhaseName, PhaseSpan, Request
from allotment.model.events import Phase
from allotment.service.ports import ImageWish

OF_ANYBODY = frozenset({"PATH", "SHELL", "LANG"})
"""Variables that every task gets, and of which an image may have its own."""


def with_image(
    request: Request,
    wish: ImageWish,
    ready: Ready,
    named: frozenset[str],
    packages: str,
    drivers: Drivers | None = None,
) -> Request:
    """Return a request that runs in an image.

    The job's command takes the place of the image's entry point and command together. Its
    variables win over the image's, but for what every task gets; those of its devices' vendor
    win over both, unless the job names them. `packages` is the folder of an environment: its
    programs come before the image's.
    """
    image = ready.image
    uid = wish.identity.uid if wish.identity is not None else os.geteuid()
    gid = wish.identity.gid if wish.identity is not None else os.getegid()
    given = request["env"]
    own = dict(word.split("=", 1) for word in image.env if word.find("=") > 0)
    wins = {name: given[name] for name in given if name in named or name not in OF_ANYBODY}
    env = {**given, **own, **wins}
    if packages and "PATH" in own and "PATH" not in named:
        env["PATH"] = f"{packages}/bin:{own['PATH']}"
    layers, binds = list(ready.layers), list[Dataset]()
    if drivers is not None:
        edits = drivers.edits
        layers = [drivers.layer, *layers]
        binds = [Dataset(source=b.source, at=b.at, write=b.write) for b in edits.binds]
        vendors = dict(word.split("=", 1) for word in edits.env)
        env |= {name: value for name, value in vendors.items() if name not in named}
        files = dict.fromkeys((*request.get("devices", ()), *edits.devices))
        request = {**request, "devices": list(files)}
        if "groups" in request:
            request["groups"] = [*request["groups"], *edits.gids]
    return {
        **request,
        "env": env,
        "cwd": wish.begins_in or _folder(image.workdir) or wish.home,
        "image": {
            "record": ready.record,
            "layers": layers,
            "passwd": f"{wish.user}:x:{uid}:{gid}:{wish.user}:{wish.home}:{wish.shell}",
            "group": f"{wish.user}:x:{gid}:",
            "home": wish.home,
            "uid": uid,
            "gid": gid,
            "drivers": binds,
        },
        "phases": [*request.get("phases", ()), *_phases(ready, drivers)],
    }


def _folder(path: str) -> str:
    return path if path.startswith("/") and "\0" not in path else ""


def _phases(ready: Ready, drivers: Drivers | None) -> list[PhaseSpan]:
    spans: list[PhaseSpan] = []
    if ready.pull_ms is not None:
        begin, end = ready.pull_ms
        spans.append({"name": "pull", "start_ms": begin, "end_ms": end})
    if ready.unpack_ms is not None:
        begin, end = ready.unpack_ms
        spans.append({"name": "unpack", "start_ms": begin, "end_ms": end})
    if drivers is not None and drivers.made_ms is not None:
        begin, end = drivers.made_ms
        spans.append({"name": "drivers", "start_ms": begin, "end_ms": end})
    return spans


def span_of(phase: Phase) -> PhaseSpan:
    """Return a phase of what came before in the launcher's words."""
    name = cast("PhaseName", phase.name)
    return {
        "name": name,
        "start_ms": phase.started_at,
        "end_ms": phase.started_at + max(1, phase.ms),
    }
