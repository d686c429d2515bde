"""Engines in the configuration, and the nodes that are theirs."""

from pathlib import Path

import msgspec
import pytest

from allotment.model.cluster import Device, Node
from allotment.model.engines import Ability, EngineSetup, EngineType, RestSetup
from allotment.model.errors import BadInput
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB, Millis
from allotment.wire.config import config_to_wire, engines_in, read_config
from allotment.wiring import kubernetes
from allotment.wiring.engines import Engines, NodesOf, abilities_of, find_engines
from tests.support.builders import a_node

MACHINE = Node(NodeId(0), "desk", 8000, 32 * GIB, 0)
FOUND = {"gpus": (a_node(0), a_node(1)), "old": (a_node(7),)}
ENGINES = """\
engines:
  here: {type: local}
  gpus: {type: slurm, partition: main}
"""
TENANTS = "tenants: {vision: {}}\n"
LISTED = """\
nodes:
- {name: n0, cpu: 8, memory: 8GiB, engine: gpus}
- {name: a, cpu: 1, memory: 1GiB, engine: here}
"""


def read(text: str, machine: Node | None = MACHINE) -> list[tuple[int, str, str]]:
    config, warnings = read_config(
        (text + TENANTS).encode(), source="c.yaml", machine=machine, found=FOUND
    )
    assert warnings == ()
    again, _ = read_config(
        msgspec.json.encode(config_to_wire(config)), source="again", machine=machine
    )
    assert again.engines == config.engines
    assert [(n.name, n.engine) for n in again.nodes] == [
        (n.name, n.engine) for n in config.nodes
    ]
    return [(node.id, node.name, node.engine) for node in config.nodes]


def test_an_engine_has_the_nodes_that_it_finds_unless_some_are_listed() -> None:
    assert read(ENGINES) == [(0, "desk", "here"), (1, "n0", "gpus"), (2, "n1", "gpus")]
    assert read(ENGINES + LISTED) == [(0, "n0", "gpus"), (1, "a", "here")]
    one = "nodes: [{name: a, cpu: 1, memory: 1GiB, engine: here}]\n"
    assert read(ENGINES + one) == [(0, "a", "here"), (1, "n0", "gpus"), (2, "n1", "gpus")]
    virtual = "virtual_gpus: {count: 3}\n"
    config, _ = read_config(
        (ENGINES + virtual + TENANTS).encode(), source="c", machine=MACHINE, found=FOUND
    )
    assert len(config.nodes[0].devices) == 3


def test_a_sole_engine_needs_no_naming_and_without_engines_all_is_as_before() -> None:
    sole = "engines: {gpus: {type: slurm, partition: main}}\n"
    assert read(sole + "nodes: [{name: n0, cpu: 1, memory: 1GiB}]\n") == [(0, "n0", "gpus")]
    assert read("") == [(0, "desk", "")]


def test_engines_are_seen_before_the_rest_is_read() -> None:
    assert engines_in((ENGINES + TENANTS).encode(), source="c") == (
        EngineSetup("here", EngineType.LOCAL),
        EngineSetup("gpus", EngineType.SLURM, "main"),
    )
    assert engines_in(TENANTS.encode(), source="c") == ()
    assert engines_in(b"engines: {x: {type: lsf}}\ntenants: {a: {}}\n", source="c") == ()


def test_a_cluster_of_kubernetes_is_read_and_written() -> None:
    text = (
        "engines: {k: {type: kubernetes, kubeconfig: /k, namespace: n, image: 'a/b:1', "
        "volumes: {/shared: data, /scratch: host}, force_after: 30min, fence_after: 15min, "
        "namespaces: {team: vision}, schedulers: hivedscheduler, visible: dgx-*, "
        "tenant_namespaces: 'jobs-{tenant}'}}\n"
    )
    (setup,) = engines_in((text + TENANTS).encode(), source="c")
    assert setup == EngineSetup(
        "k", EngineType.KUBERNETES, kubeconfig="/k", namespace="n", image="a/b:1",
        volumes=(("/scratch", "host"), ("/shared", "data")), force_after_ms=Millis(1_800_000),
        namespaces=(("team", ("vision",)),), schedulers=("hivedscheduler",),
        fence_after_ms=Millis(900_000), visible=("dgx-*",),
        tenant_namespaces=(("", "jobs-{tenant}"),),
    )  # fmt: skip
    found = {"k": FOUND["gpus"]}
    config, _ = read_config((text + TENANTS).encode(), source="c", machine=None, found=found)
    again = msgspec.json.encode(config_to_wire(config))
    assert read_config(again, source="c", machine=None)[0].engines == config.engines


def test_a_start_finds_devices_with_names_in_the_places_that_they_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that run have them by index, and one that came last is not last by its name."""

    def a_node(*numbers: int) -> Node:
        devices = tuple(
            Device(
                DeviceIndex(place), "gpu", uuid=f"gpu.nvidia.com/n0/gpu-{number}", virtual=False
            )
            for place, number in enumerate(numbers)
        )
        return Node(NodeId(0), "n0", 8000, 8 * GIB, 0, devices)

    def found_by(*numbers: int) -> list[str]:
        monkeypatch.setattr(
            kubernetes, "discovered", lambda setup, is_first: (a_node(*numbers),)
        )
        text = b"engines: {k: {type: kubernetes}}"
        (node,) = find_engines(tmp_path, text + b"\n" + TENANTS.encode(), "", MACHINE).found[
            "k"
        ]
        assert [device.index for device in node.devices] == list(range(len(node.devices)))
        return [device.uuid[-1] for device in node.devices]

    assert found_by(1, 2) == ["1", "2"]
    assert found_by(0, 1, 2) == ["1", "2", "0"]
    assert found_by(0, 1) == ["1", "2", "0"], "2 is gone, and not another"
    assert found_by() == ["1", "2", "0"]


IN_HALVES = """\
engines: {k: {type: kubernetes}}
cells:
  types: {half: {of: A100, count: 1}, host: {of: half, count: 2, node: true}}
  roots: [{type: host, nodes: [n0]}]
tenants: {vision: {cells: {half: 1}}}
"""


def test_cells_are_smaller_than_a_node_of_kubernetes_where_its_devices_have_names(
    tmp_path: Path,
) -> None:
    def engines(prefix: str) -> Engines:
        devices = tuple(
            Device(DeviceIndex(index), "A100", uuid=f"{prefix}gpu-{index}", virtual=False)
            for index in range(2)
        )
        node = Node(NodeId(0), "n0", 8000, 8 * GIB, 0, devices)
        setup = EngineSetup("k", EngineType.KUBERNETES)
        return Engines(tmp_path, (setup,), None, {"k": (node,)})

    config, _ = engines("gpu.nvidia.com/n0/").read(IN_HALVES.encode(), "c.yaml")
    assert Ability.PINS not in config.nodes[0].lacks
    assert Ability.SUSPENDS in config.nodes[0].lacks
    with pytest.raises(BadInput, match="no cell may be smaller than a node"):
        engines("").read(IN_HALVES.encode(), "c.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{here: }", r"engines\.here: must be a map of keys, not nothing"),
        (
            "{g: {type: slurm, partition: p, accounts: {vision: }}}",
            r"accounts\.vision: must be",
        ),
    ],
)
def test_a_name_without_a_value_is_not_left_out(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_config(f"engines: {text}\n{TENANTS}".encode(), source="c", machine=MACHINE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schedulers: hivedscheduler", "schedulers: has no pods to place"),
        ("namespaces: {a: vision}, schedulers: [default-scheduler]", "names kube-scheduler"),
    ],
)
def test_further_names_of_a_scheduler_that_cannot_be_ours_are_refused(
    text: str, said: str
) -> None:
    whole = f"engines: {{k: {{type: kubernetes, {text}}}}}\n{TENANTS}"
    with pytest.raises(BadInput, match=said):
        read_config(whole.encode(), source="c", machine=None, found={"k": FOUND["gpus"]})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("jobs", r"'jobs' has no \{tenant\} in it"),
        ("{nobody: jobs}", "there is no such tenant"),
        ("{vision: Jobs}", "Jobs cannot be the name of a namespace"),
        ("'Jobs-{tenant}'", "Jobs-vision cannot be the name of a namespace"),
        ("{vision: team}, namespaces: {team: vision}", "team is among `namespaces`"),
    ],
)
def test_a_namespace_that_cannot_be_a_tenants_is_refused(said: str, why: str) -> None:
    text = f"engines: {{k: {{type: kubernetes, tenant_namespaces: {said}}}}}\n{TENANTS}"
    with pytest.raises(BadInput, match=why):
        read_config(text.encode(), source="c", machine=None, found={"k": FOUND["gpus"]})


def test_a_task_hears_of_the_service_before_it_would_end_itself() -> None:
    text = f"engines: {{k: {{type: kubernetes, fence_after: 4min}}}}\n{TENANTS}"
    with pytest.raises(BadInput, match=r"fence_after: is too short.*within two minutes"):
        read_config(text.encode(), source="c", machine=None, found={"k": FOUND["gpus"]})


@pytest.mark.parametrize("program", ["/opt/apptainer/bin/apptainer", "none"])
def test_what_runs_images_on_slurm_is_read_and_written(program: str) -> None:
    text = f"engines: {{gpus: {{type: slurm, partition: main, apptainer: {program}}}}}\n"
    found = {"gpus": FOUND["gpus"]}
    config, _ = read_config((text + TENANTS).encode(), source="c", machine=None, found=found)
    (setup,) = config.engines
    assert setup.apptainer == program
    assert (Ability.IMAGES in abilities_of(setup, Path("/s"))) == (program != "none")
    again = msgspec.json.encode(config_to_wire(config))
    assert read_config(again, source="c", machine=None)[0].engines == config.engines


@pytest.mark.parametrize(
    ("text", "for_all", "of_tenants"),
    [("normal", "normal", ()), ("{vision: high}", "", (("vision", "high"),))],
)
def test_a_quality_of_service_is_of_all_or_of_a_tenant(
    text: str, for_all: str, of_tenants: tuple[tuple[str, str], ...]
) -> None:
    whole = f"engines: {{gpus: {{type: slurm, partition: p, qos: {text}}}}}\n{TENANTS}"
    found = {"gpus": FOUND["gpus"]}
    config, _ = read_config(whole.encode(), source="c", machine=None, found=found)
    (setup,) = config.engines
    assert (setup.qos, setup.qos_of) == (for_all, of_tenants)
    again = msgspec.json.encode(config_to_wire(config))
    assert read_config(again, source="c", machine=None)[0].engines == config.engines


def test_a_folder_on_the_nodes_own_disks_is_read_and_written() -> None:
    text = "engines: {p: {type: pilot, partition: main, folder: /var/lib/allotment}}\n"
    found = {"p": FOUND["gpus"]}
    config, _ = read_config((text + TENANTS).encode(), source="c", machine=None, found=found)
    assert config.engines[0].folder == "/var/lib/allotment"
    again = msgspec.json.encode(config_to_wire(config))
    assert read_config(again, source="c", machine=None)[0].engines == config.engines


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("url: 'http://h:6820', token: /t", RestSetup("http://h:6820", "/t")),
        (
            "socket: /run/s, token_command: scontrol token 'username=a b', user: root",
            RestSetup("unix:/run/s", "", ("scontrol", "token", "username=a b"), "root"),
        ),
        ("socket: /run/s", RestSetup("unix:/run/s")),
    ],
)
def test_how_slurm_is_asked_over_rest_is_read_and_written(text: str, rest: RestSetup) -> None:
    whole = f"engines: {{g: {{type: slurm, partition: p, rest: {{{text}}}}}}}\n" + TENANTS
    assert engines_in(whole.encode(), source="c")[0].rest == rest
    found = {"g": FOUND["gpus"]}
    config, _ = read_config(whole.encode(), source="c", machine=None, found=found)
    again = msgspec.json.encode(config_to_wire(config))
    assert read_config(again, source="c", machine=None)[0].engines == config.engines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type: slurm, partition: p, rest: {token: /t}", "socket: is missing, and so is `url`"),
        ("type: slurm, partition: p, rest: {url: 'http://h', socket: /s}", "beside `url`"),
        ("type: slurm, partition: p, rest: {url: 'h:1', token: /t}", "url: is not a URL"),
        ("type: slurm, partition: p, rest: {url: 'http://h'}", "token: is missing"),
        ("type: slurm, partition: p, rest: {socket: s}", "socket: s is not an absolute path"),
        ('type: slurm, partition: p, rest: {socket: /s, token_command: "a \'b"}', "quotation"),
        (
            "type: slurm, partition: p, rest: {socket: /s, token: /t, token_command: a}",
            "beside",
        ),
        ("type: pilot, partition: p, rest: {socket: /s}", "engine of type pilot has no such"),
    ],
)
def test_what_is_wrong_with_rest_is_said(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_config(f"engines: {{a: {{{text}}}}}\n{TENANTS}".encode(), source="c", machine=None)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engines: {a: {type: local, folder: /x}}\n", "an engine of type local has no such"),
        ("engines: {a: {type: pilot, partition: p, folder: x}}\n", "is not an absolute path"),
        ("engines: {a: {type: pilot, partition: p, apptainer: /x}}\n", "pilot has no such"),
        (
            "engines: {a: {type: slurm, partition: p, apptainer: x}}\n",
            "is not an absolute path",
        ),
        ("engines: {a: {type: lsf}}\n", "local, slurm, pilot or kubernetes"),
        ("engines: {a: {type: slurm}}\n", "partition: is missing"),
        ("engines: {a: {type: local, partition: x}}\n", "this machine has none"),
        ("engines: {a: {type: local}, b: {type: local}}\n", "is this machine, as is a"),
        (
            "engines: {gpus: {type: slurm, partition: p}, old: {type: slurm, partition: p}}\n",
            "is partition p, as is gpus",
        ),
        ("engines: {a: {type: local, qos: x}}\n", "an engine of type local has no such"),
        (
            "engines: {a: {type: pilot, partition: x, accounts: {a: b}}}\n",
            "an engine of type pilot has no such",
        ),
        (
            "engines: {gpus: {type: slurm, partition: p, qos: {lap: x}}}\n",
            "there is no such tenant",
        ),
        (
            "engines: {gpus: {type: slurm, partition: p, accounts: {lap: x}}}\n",
            "there is no such tenant",
        ),
        ("engines: {a: {type: local, image: x}}\n", "is for engines of Kubernetes"),
        ("engines: {a: {type: kubernetes, partition: x}}\n", "Kubernetes has none"),
        (
            "engines: {k: {type: kubernetes}, l: {type: kubernetes}}\n",
            "is that cluster, as is k",
        ),
        ("engines: {any: {type: local}}\n", "cannot be the name of an engine"),
        (ENGINES + "nodes: [{name: a, cpu: 1, memory: 1GiB}]\n", "there are several engines"),
        (
            ENGINES + "nodes: [{name: a, cpu: 1, memory: 1GiB, engine: gpu}]\n",
            "there is no engine gpu",
        ),
        ("nodes: [{name: a, cpu: 1, memory: 1GiB, engine: x}]\n", "there is no engine x"),
        (
            ENGINES + "nodes: [{name: n1, cpu: 1, memory: 1GiB, engine: here}]\n",
            "finds node n1, which engine here has already",
        ),
        ("engines: {new: {type: slurm, partition: q}}\n", "has no nodes that are known"),
        (ENGINES + "hardware: [2 x dgx-a100]\n", "does not say which engine runs its"),
    ],
)
def test_what_does_not_add_up_is_told(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_config((text + TENANTS).encode(), source="c", machine=MACHINE, found=FOUND)
    assert said in str(caught.value)


def test_the_nodes_of_an_engine_are_put_together_once_a_configuration() -> None:
    config, _ = read_config(
        (ENGINES + TENANTS).encode(), source="c", machine=MACHINE, found=FOUND
    )
    in_force = [config]
    nodes = NodesOf("gpus", lambda: in_force[0])
    assert [node.name for node in nodes()] == ["n0", "n1"]
    assert nodes() is nodes()
    in_force[0] = msgspec.structs.replace(config, nodes=config.nodes[:2])
    assert [node.name for node in nodes()] == ["n0"]
