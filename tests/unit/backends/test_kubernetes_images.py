"""Which nodes of Kubernetes have an image, by what their kubelets say."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from allotment.backends.kubernetes import client
from allotment.backends.kubernetes.cluster import is_news
from allotment.backends.kubernetes.held_images import spellings_of
from allotment.backends.kubernetes.objects import MOST_NAMES, KubeNode, read
from allotment.model.content import Content, ContentKind
from allotment.model.ids import NodeId
from tests.support.kube_world import World, a_node, until

DIGEST = f"sha256:{'a' * 64}"


def a_kube_node(*names: str) -> KubeNode:
    tree = {"metadata": {"name": "n1"}, "status": {"images": [{"names": [n]} for n in names]}}
    node = read(msgspec.json.encode(tree), KubeNode)
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("image", "reported", "is_it"),
    [
        ("busybox", "docker.io/library/busybox:latest", True),
        ("busybox:1", "busybox:1", True),
        ("pytorch/pytorch:2.6", "docker.io/pytorch/pytorch:2.6", True),
        ("r.example.org/a/b:1", "r.example.org/a/b:1", True),
        ("r.example.org/a/b:1", "r.example.org/a/b:2", False),
        (f"r.example.org/a/b:1@{DIGEST}", f"r.example.org/a/b@{DIGEST}", True),
        (f"r.example.org/a/b:1@{DIGEST}", "r.example.org/a/b:1", False),
        ("NO name", "NO name", True),
    ],
)
def test_an_image_is_known_by_the_names_that_kubelets_use(
    image: str, reported: str, *, is_it: bool
) -> None:
    assert (reported in spellings_of(image)) is is_it


def test_names_are_kept_once_and_not_without_end() -> None:
    one, other = a_kube_node("docker.io/a/b:1"), a_kube_node("docker.io/a/b:1")
    assert one.status.image_names[0] is other.status.image_names[0]
    assert one.status.images is None
    many = a_kube_node(*(f"i:{n}" for n in range(1000)))
    assert len(many.status.image_names) == MOST_NAMES


def test_another_image_is_no_news_of_what_may_run() -> None:
    assert not is_news(a_kube_node("a:1"), a_kube_node("a:1", "b:2"))


def test_nodes_are_known_by_their_images_as_these_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(client, "Http", world.api.opened)
    world.nodes = [a_node("n1", 0), a_node("n2", 5)]

    async def story() -> None:
        world.api.add_node("n2")
        world.api.hold("n2", "docker.io/library/torch:1")
        async with world.service() as backend:
            torch, jax = (Content(ContentKind.IMAGE, name) for name in ("torch:1", "jax:1"))
            data = Content(ContentKind.DATA, "torch:1")

            def having(image: Content) -> frozenset[NodeId]:
                return backend.nodes_with((torch, jax, data))[image].nodes

            assert data not in backend.nodes_with((torch, data))
            assert (having(torch), having(jax)) == ({NodeId(5)}, frozenset())
            assert having(torch) is having(torch)
            world.api.hold("n1", "docker.io/library/torch:1", "docker.io/library/jax:1")
            await until(lambda: having(jax) == {NodeId(0)})
            assert having(torch) == {NodeId(0), NodeId(5)}
            world.api.hold("n2")
            await until(lambda: having(torch) == {NodeId(0)})
            world.nodes = [a_node("n1", 7)]
            assert having(torch) == {NodeId(7)}

    asyncio.run(story())
