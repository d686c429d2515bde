"""A node whose mode is changed while tasks run there: no device of it is given twice."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from allotment.backends.kubernetes import client
from allotment.backends.kubernetes.modes import Mode, Modes, mode_of, mode_on
from allotment.backends.kubernetes.objects import Pod
from allotment.model.others import NOBODY, Others
from allotment.model.reports import OthersReport
from allotment.service.ports import Binding
from tests.support.kube_world import GANG, TASK, World, a_node, until

TWO = replace(GANG, tasks=(replace(TASK, binding=Binding("n1", (0, 1))),))
NOTE = {"allotment.io/devices": "0,1"}


def a_pod(devices: int = 0, notes: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    limits = {"limits": {"nvidia.com/gpu": str(devices)}}
    tree = {
        "metadata": {"name": "p", "uid": "u", "annotations": notes or {}},
        "spec": {"nodeName": "n1", "containers": [{"resources": limits}], **spec},
    }
    return msgspec.convert(tree, Pod)


def test_how_a_pod_has_its_devices_is_seen_from_it() -> None:
    claims = [{"name": "devices", "resourceClaimName": "p"}]
    assert mode_of(a_pod(resourceClaims=claims), is_ours=True) is Mode.NAMED
    assert mode_of(a_pod(2), is_ours=True) is Mode.COUNTED
    assert mode_of(a_pod(notes=NOTE), is_ours=True) is Mode.TOLD
    assert mode_of(a_pod(notes=NOTE), is_ours=False) is None, "anybody can write it"
    assert mode_of(a_pod(), is_ours=True) is None
    assert mode_of(a_pod(2, nodeName=""), is_ours=True) is None
    named = replace(a_node(), devices=tuple(
        replace(each, uuid=f"d/p/{each.index}") for each in a_node().devices
    ))  # fmt: skip
    assert mode_on(named, is_named=False, is_visible=True) is Mode.NAMED
    assert mode_on(a_node(), is_named=True, is_visible=True) is Mode.NAMED
    assert mode_on(a_node(), is_named=False, is_visible=True) is Mode.TOLD
    assert mode_on(a_node(), is_named=False, is_visible=False) is Mode.COUNTED


def test_what_ended_or_is_not_listed_is_forgotten() -> None:
    modes = Modes()
    assert modes.note("a", "n1", Mode.COUNTED) == {"n1"}
    assert modes.note("a", "n1", Mode.COUNTED) == ()
    assert modes.note("b", "n2", Mode.TOLD) == {"n2"}
    assert modes.is_mixed("n1", Mode.TOLD)
    assert not modes.is_mixed("n1", Mode.COUNTED)
    assert not modes.is_mixed("n3", Mode.TOLD)
    assert modes.keep({"b"}) == {"n1"}
    assert not modes.is_mixed("n1", Mode.TOLD)
    assert modes.note("b", "", None) == {"n2"}
    assert modes.note("b", "", None) == ()


@pytest.mark.parametrize(("before", "after"), [((), ("n1",)), (("n1",), ())])
def test_no_device_is_free_while_a_task_has_some_in_another_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[str, ...],
    after: tuple[str, ...],
) -> None:
    world = World(tmp_path, visible=before)
    monkeypatch.setattr(client, "Http", world.api.opened)

    def others() -> Others:
        found = [each.use for each in world.reports if isinstance(each, OthersReport)]
        return found[-1] if found else NOBODY

    async def story() -> None:
        async with world.service() as backend:
            await backend.launch(TWO)
            await until(world.api.our_pod)
            await until(lambda: world.api.our_pod()["spec"].get("nodeName"))
            world.api.run()
            assert others() == NOBODY
        world.setup = {"visible": after}
        world.reports.clear()
        async with world.service():
            await until(lambda: others().indexes)
            assert others().indexes == (0, 1, 2, 3)
            world.api.finish(0)
            await until(lambda: others() == NOBODY)

    asyncio.run(story())
