"""What `allot config plan` says of a tenant and its queues: key by key."""

from allotment.model.tenancy import Config
from allotment.service.reconfigure import differences
from allotment.wire.config import read_config

HEAD = "nodes: [{name: n1, cpu: 64, memory: 512GiB, gpu: {type: V100, count: 8}}]\n"


def read(lab: str, more: str = "") -> Config:
    text = f"{HEAD}tenants: {{lab: {{{lab}}}}}\n{more}"
    return read_config(text.encode(), source="c.yaml", machine=None)[0]


def told(old: Config, new: Config) -> list[str]:
    return [f"{each.sign} {each.what}: {each.detail}" for each in differences(old, new)]


def test_each_key_of_a_queue_that_changes_is_named() -> None:
    old = read("queues: {research: {queues: {train: {limit: {gpu: 4}}}}}")
    new = read(
        "queues: {research: {queues: {train: {limit: {gpu: 1, gpu_by_type: {V100: 1}}, "
        "state: stopped, max_jobs: 1, order: easy, rank: shortest, share: drf, weight: 2, "
        "overtaken: 3, max_waiting: 10, lend: false, per_user: {gpu: 1}}}}}"
    )
    assert told(old, new) == [
        "~ queue lab/research.train: limit 4 GPUs → 1 GPU + 1 V100 GPU, lend true → false, "
        "weight 1 → 2, state open → stopped, order strict → easy, rank submitted → shortest, "
        "share first_come → drf, overtaken none → 3, max_jobs none → 1, "
        "max_waiting none → 10, per_user none → 1 GPU"
    ]


def test_what_gangs_of_a_queue_do_beside_waiting_is_named() -> None:
    old = read("queues: {train: {migrate: true}}")
    new = read("queues: {train: {affinity: true, time_slice: 60s, grow: 5min}}")
    assert told(old, new) == [
        "~ queue lab/train: rank submitted → round_robin, time_slice none → 1 min 0 s, "
        "grow none → 5 min 0 s, migrate true → false, affinity false → true"
    ]


def test_slices_by_cost_are_named_as_they_are_written() -> None:
    told_so = ["~ queue lab/train: time_slice 1 min 0 s → auto"]
    old = read("queues: {train: {time_slice: 60s}}")
    assert told(old, read("queues: {train: {time_slice: auto}}")) == told_so


def test_queues_come_and_go() -> None:
    old, new = read("queues: {a: {}, b: {}}"), read("queues: {b: {}, c: {}}")
    assert told(old, new) == ["- queue lab/a: ", "+ queue lab/c: "]


def test_the_keys_of_a_tenant_are_named_beside_what_it_is_guaranteed() -> None:
    old = read("guaranteed: {gpu: 8, cpu: 1, memory: 1GiB}")
    new = read(
        "guaranteed: {gpu: 4, cpu: 1, memory: 1GiB}, users: [ann], weight: 2", "share: drf"
    )
    assert told(old, new) == [
        "~ tenant lab: 8 GPU, 1 CPU, 1 GiB memory → 4 GPU, 1 CPU, 1 GiB memory; users, weight",
        "~ share: first_come → drf",
    ]
