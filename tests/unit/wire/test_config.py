"""The cluster configuration: nodes, tenants, shares, limits."""

from typing import Any

import msgspec
import pytest

from allotment.model.cluster import Device, Node
from allotment.model.errors import BadInput
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import DAY, GIB, Resources
from allotment.model.spec import Arch
from allotment.model.tenancy import (
    Config,
    Limits,
    PerUser,
    Preempt,
    Queue,
    QueueOrder,
    Tenant,
    Visibility,
)
from allotment.wire.config import config_to_wire, default_config, read_config

HERE = Node(NodeId(0), "here", 8000, 32 * GIB, 100 * GIB)
REAL = tuple(
    Device(DeviceIndex(at), "NVIDIA H100", 80 * GIB, f"GPU-{at}", virtual=False)
    for at in range(2)
)
WITH_GPUS = msgspec.structs.replace(HERE, devices=REAL)

WHOLE = """\
nodes:
  - name: n1
    cpu: 8
    memory: 32GiB
    disk: 100GiB
    gpu: {type: A100-80G, count: 2, memory: 80GiB}
    labels: {rack: r1}
  - name: n2
    cpu: 64
    memory: 96GiB
    arch: arm64
    address: 10.0.0.2
    gpu:
      - {type: A100-80G, count: 1, memory: 80GiB, virtual: false, uuids: [GPU-x]}
      - {type: V100, count: 1}
tenants:
  vision:
    guaranteed: {gpu: 1}
    users: [alice]
    groups: [vision, "domain users"]
    borrow: false
    preempt: demote
    per_user: {gpu: 2, memory: 8GiB}
    queues: {default: {order: skip}, nightly: }
  nlp: {guaranteed: {cpu: 18, memory: 1GiB}}
  guests:
default_tenant: nlp
visibility: open
limits:
  platform_retries: 3
  backoff: {first: 2s, most: 1m}
  phase: 30s
  barrier: 1m
  keep_finished: 10
  keep_history: 2d
  task_log: 1MiB
  task_pids: 64
  ports: 20000-20999
"""


def read(text: str, machine: Node | None = HERE) -> tuple[Config, list[str]]:
    config, warnings = read_config(text.encode(), source="c.yaml", machine=machine)
    return config, [str(warning) for warning in warnings]


def problems(text: str, machine: Node | None = HERE) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(text, machine)
    return [str(problem) for problem in caught.value.problems]


def test_every_key_gets_to_its_place() -> None:
    config, warnings = read(WHOLE)
    assert warnings == []
    first, second = config.nodes
    assert first == Node(
        NodeId(0),
        "n1",
        8000,
        32 * GIB,
        100 * GIB,
        (
            Device(DeviceIndex(0), "A100-80G", 80 * GIB),
            Device(DeviceIndex(1), "A100-80G", 80 * GIB),
        ),
        labels=(("rack", "r1"),),
    )
    assert (second.id, second.arch, second.address) == (1, Arch.ARM64, "10.0.0.2")
    assert second.devices == (
        Device(DeviceIndex(0), "A100-80G", 80 * GIB, "GPU-x", virtual=False),
        Device(DeviceIndex(1), "V100"),
    )
    assert config.tenants == (
        Tenant(
            "vision",
            # A quarter of the GPUs brings a quarter of everything else.
            Resources(1000, 18_000, 32 * GIB, 25 * GIB, 60 * GIB),
            (Queue("default", QueueOrder.SKIP), Queue("nightly")),
            ("alice",),
            ("vision", "domain users"),
            borrow=False,
            preempt=Preempt.DEMOTE,
            per_user=Resources(gpu_milli=2000, memory=8 * GIB),
        ),
        # A quarter of the CPUs brings a quarter of the disk, and no GPUs.
        Tenant("nlp", Resources(0, 18_000, GIB, 25 * GIB, 0)),
        Tenant("guests"),
    )
    assert config.default_tenant == "nlp"
    assert config.visibility is Visibility.OPEN
    assert config.limits == Limits(
        platform_retries=3,
        backoff_first_ms=2000,
        backoff_most_ms=60_000,
        phase_ms=30_000,
        barrier_ms=60_000,
        keep_finished=10,
        keep_history_ms=2 * DAY,
        task_log_bytes=1 << 20,
        task_pids=64,
        ports=(20_000, 21_000),
    )


def test_no_limit_is_forgotten() -> None:
    other: dict[str, Any] = {"ports": (2000, 3000), "per_user": PerUser(1, 2, 3, 4)}
    values: dict[str, Any] = {
        field: other[field] if field in other else getattr(Limits(), field) + 1
        for field in Limits.__struct_fields__
    }
    config = Config((HERE,), (Tenant("a"),), Limits(**values))
    written = msgspec.json.encode(config_to_wire(config)).decode()
    assert read(written) == (config, [])


def test_a_configuration_is_written_so_that_it_reads_back() -> None:
    config, _ = read(WHOLE)
    written = msgspec.json.encode(config_to_wire(config)).decode()
    assert read(written) == (config, [])


def test_without_nodes_this_machine_is_the_cluster() -> None:
    assert read("tenants: {a: }", WITH_GPUS)[0].nodes == (WITH_GPUS,)


def test_a_machine_without_gpus_can_pretend() -> None:
    config, warnings = read("virtual_gpus: {count: 2, memory: 1GiB}\ntenants: {a: }")
    assert config.nodes[0].devices == (
        Device(DeviceIndex(0), "virtual", GIB, virtual=True),
        Device(DeviceIndex(1), "virtual", GIB, virtual=True),
    )
    assert warnings == []


def test_real_gpus_are_not_hidden_by_pretended_ones() -> None:
    config, warnings = read("virtual_gpus: {count: 9}\ntenants: {a: }", WITH_GPUS)
    assert config.nodes[0].devices == REAL
    assert warnings == [
        "line 1: virtual_gpus: is ignored: this machine has 2 GPUs of its own (list the "
        "machine under `nodes` to hide them)"
    ]


def test_those_pretended_at_the_start_count_before_those_of_the_file() -> None:
    devices = tuple(Device(DeviceIndex(at), "virtual") for at in range(3))
    started = msgspec.structs.replace(HERE, devices=devices)
    config, warnings = read("virtual_gpus: {count: 9}\ntenants: {a: }", started)
    assert config.nodes[0].devices == devices
    assert warnings == [
        "line 1: virtual_gpus: is ignored: `--gpus 3` counts, said at the start (start "
        "without it to have those of the file)"
    ]


def test_a_listed_machine_keeps_its_real_gpus() -> None:
    text = """\
nodes:
  - {name: here, cpu: 16, memory: 64GiB, gpu: {type: H100, count: 3}}
virtual_gpus: {count: 1}
tenants: {a: }
"""
    config, warnings = read(text, WITH_GPUS)
    assert config.nodes[0].devices == (
        msgspec.structs.replace(REAL[0], type="H100"),
        msgspec.structs.replace(REAL[1], type="H100"),
        Device(DeviceIndex(2), "H100", virtual=True),
    )
    assert warnings == [
        "line 2: nodes[0].cpu: is more than the 8 CPUs of this machine (tasks will share what "
        "there is)",
        "line 2: nodes[0].memory: is more than the 32 GiB of this machine (tasks will share "
        "what there is)",
        "line 2: nodes[0].gpu: is more than the 2 GPUs of this machine: the rest is virtual "
        "(write virtual: true for those that are virtual)",
        "line 3: virtual_gpus: is ignored: `nodes` says what there is (take one of them out)",
    ]


def test_machines_that_are_alike_are_listed_together() -> None:
    text = """\
nodes:
  - {names: [n1, n2], cpu: 8, memory: 32GiB, gpu: {type: A, count: 2}, labels: {rack: r1}}
  - {names: [here], cpu: 8, memory: 32GiB, gpu: {type: H100, count: 2}}
tenants: {a: }
"""
    config, warnings = read(text, WITH_GPUS)
    assert warnings == []
    assert [(node.id, node.name) for node in config.nodes] == [
        (0, "n1"),
        (1, "n2"),
        (2, "here"),
    ]
    assert config.nodes[1].labels == (("rack", "r1"),)
    assert [device.uuid for device in config.nodes[2].devices] == ["GPU-0", "GPU-1"]


def test_guarantees_beyond_the_cluster_say_of_what_how_much_and_whose() -> None:
    text = """\
virtual_gpus: {count: 8}
tenants:
  vision: {guaranteed: {gpu: 6}}
  nlp: {guaranteed: {gpu: 3}}
  speech: {guaranteed: {cpu: 1}}
"""
    assert problems(text) == [
        "line 2: tenants: all guarantees of memory add up to 40 GiB, which is 8 GiB more than "
        "there is: vision 24 GiB (in proportion), nlp 12 GiB (in proportion), speech 4 GiB (in "
        "proportion) (lower a guarantee, or add nodes)",
        "line 3: tenants.vision.guaranteed.gpu: all guarantees of gpu add up to 9 GPU, which "
        "is 1 GPU more than there is: vision 6 GPU, nlp 3 GPU (lower a guarantee, or add "
        "nodes)",
        "line 5: tenants.speech.guaranteed.cpu: all guarantees of cpu add up to 10 CPU, which "
        "is 2 CPU more than there is: vision 6 CPU (in proportion), nlp 3 CPU (in proportion), "
        "speech 1 CPU (lower a guarantee, or add nodes)",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("limits: {}", "line 1: tenants: is missing (add tenants: {vision: {guaranteed: {gpu: "
         "4}}})"),
        ("tenants: {}", "line 1: tenants: must have at least one entry (add one, or take the "
         "key out)"),
        ("tenants: {a: }\ntenants: {b: }", "line 2: `tenants` was given before, on line 1 "
         "(keep one of the two)"),
        ("tenants: {a: {guarnteed: {gpu: 1}}}", "line 1: tenants.a.guarnteed: there is no key "
         "`guarnteed` here (did you mean `guaranteed`?)"),
        ("tenants: {a: }\ndefault_tenant: aa", "line 2: default_tenant: there is no tenant aa "
         "(did you mean `a`?)"),
        ("tenants: {a: }\ndefault_tenant: zz", "line 2: default_tenant: there is no tenant zz "
         "(tenants: a)"),
        ("tenants: {a: {queues: {}}}", "line 1: tenants.a.queues: must have at least one entry "
         "(add one, or take the key out)"),
        ("tenants: {a: {queues: {q: {order: fifo}}}}", "line 1: tenants.a.queues.q.order: must "
         "be strict, skip, easy or conservative, not 'fifo' (may later jobs overtake a "
         "blocked one? strict: no; skip: yes; easy: if they do not delay it; conservative: "
         "if they delay no job before them)"),
        ("tenants: {a: {preempt_rules: {per: 0s}}}", "line 1: tenants.a.preempt_rules.per: "
         "must be more than 0 (write it like 30min; left out it is 1h)"),
        ("tenants: {a: {}}\nlimits: {phase: 0s}", "line 2: limits.phase: must be more than 0 "
         "(write it like 90s or 2h30m)"),
        ("tenants: {a: {preempt: kill}}", "line 1: tenants.a.preempt: must be none, evict or "
         "demote, not 'kill' (none: they wait; evict: they take the place; demote: they "
         "take the guarantee)"),
        ("tenants: {a: {per_user: {gpu: 0}}}", "line 1: tenants.a.per_user.gpu: 0 is not a cap "
         "(leave it out, or give at least 1)"),
        ("tenants: {a: {users: ['a:b']}}", "line 1: tenants.a.users[0]: 'a:b' cannot be a user "
         "or group (name one, as `id` shows it)"),
        ("nodes: [{name: n, cpu: 1, memory: 1GiB}, {name: n, cpu: 1, memory: 1GiB}]\ntenants: "
         "{a: }", "line 1: nodes[1].name: n is the name of nodes[0] too (rename one)"),
        ("nodes: [{names: [n, n], cpu: 1, memory: 1GiB}]\ntenants: {a: }", "line 1: "
         "nodes[0].names[1]: n is the name of nodes[0].names[0] too (rename one)"),
        ("nodes: [{name: n, names: [m], cpu: 1, memory: 1GiB}]\ntenants: {a: }", "line 1: "
         "nodes[0].names: is given beside `name` (name one machine or several)"),
        ("nodes: [{cpu: 1, memory: 1GiB}]\ntenants: {a: }", "line 1: nodes[0].name: is missing "
         "(add name: n1)"),
        ("nodes: [{name: n}]\ntenants: {a: }", "line 1: nodes[0].cpu: is missing (add cpu: 8)"),
        ("nodes: []\ntenants: {a: }", "line 1: nodes: must have at least one entry (add one, "
         "or take the key out)"),
        ("nodes: [{name: n, cpu: 1, memory: 1GiB, arch: any}]\ntenants: {a: }", "line 1: "
         "nodes[0].arch: must be x86_64 or arm64, not 'any'"),
        ("nodes: [{name: n, cpu: 1, memory: 1GiB, gpu: 4}]\ntenants: {a: }", "line 1: "
         "nodes[0].gpu: must be a map or a list, not 4 (such as {type: A100-80G, count: 4, "
         "memory: 80GiB})"),
        ("nodes: [{name: n, cpu: 1, memory: 1GiB, gpu: {type: A, count: 2, uuids: [x]}}]\n"
         "tenants: {a: }", "line 1: nodes[0].gpu.uuids: has 1 for 2 devices (give one for "
         "each, or none)"),
        ("tenants: {a: }\nlimits: {backoff: {first: 1h}}", "line 2: limits.backoff.first: is "
         "more than `most` (make it the smaller of the two)"),
        ("tenants: {a: }\nlimits: {ports: 80-90}", "line 2: limits.ports: '80-90' is not a "
         "range of free ports (stay within 1024-65535)"),
        ("tenants: {a: }\nlimits: {ports: 5}", "line 2: limits.ports: must be a range of "
         "ports, not 5 (write it like 20000-31999, or none)"),
        ("- x", "line 1: must be a map of keys, not a list"),
    ],
)  # fmt: skip
def test_a_problem_says_where_what_and_what_next(text: str, problem: str) -> None:
    assert problem in problems(text)


def test_without_a_machine_nodes_are_needed() -> None:
    assert problems("tenants: {a: }", None) == [
        "line 1: nodes: is missing, and this machine is not to be used (add nodes: [{name: n1, "
        "cpu: 8, memory: 32GiB}])"
    ]


def test_a_cluster_of_absurd_size_is_refused_before_it_is_built() -> None:
    node = "  - {name: n, cpu: 1, memory: 1GiB, gpu: {type: A, count: 1024}}\n"
    text = "nodes:\n" + node * 100 + "tenants: {a: }"
    assert problems(text)[0].startswith("line 1: nodes: lists 102,400 GPUs, and 100,000 are")


def test_first_start_gives_every_group_an_equal_share() -> None:
    config = default_config(
        [msgspec.structs.replace(WITH_GPUS, cpu_milli=8001)],
        ["vision", "domain users", "vision"],
    )
    assert config.default_tenant == "vision"
    assert config.tenants == (
        Tenant(
            "vision", Resources(1000, 4001, 16 * GIB, 50 * GIB, 80 * GIB), groups=("vision",)
        ),
        Tenant(
            "domain-users",
            Resources(1000, 4000, 16 * GIB, 50 * GIB, 80 * GIB),
            groups=("domain users",),
        ),
    )


def test_gpus_are_shared_as_wholes_and_the_rest_is_the_firsts() -> None:
    shares = [item.guaranteed.gpu_milli for item in default_config([WITH_GPUS], "abc").tenants]
    assert shares == [2000, 0, 0]


def test_without_groups_one_tenant_is_open_to_all() -> None:
    config = default_config([HERE], [])
    assert config.tenants == (Tenant("default", HERE.total()),)


def test_names_that_become_alike_stay_apart() -> None:
    names = [item.name for item in default_config([HERE], ["a b", "a/b", "/", "ä"]).tenants]
    assert names == ["a-b", "a-b-2", "default", "default-2"]
