"""Queues in a configuration: nested or under a parent, and what does not add up."""

import json

import pytest

from allotment.model.amounts import amounts
from allotment.model.errors import BadInput
from allotment.model.quantity import Millis
from allotment.model.tenancy import Config, Queue, QueueOrder, QueueState, RankBy
from allotment.wire.config import config_to_wire, read_config

HEAD = "nodes: [{name: n1, cpu: 8, memory: 32GiB, gpu: {type: V100, count: 8}}]\ntenants:\n"


def read(queues: str) -> Config:
    text = f"{HEAD}  lab:\n    queues:\n{queues}"
    config, _ = read_config(text.encode(), source="c.yaml", machine=None)
    return config


TREE = """\
      research:
        limit: {gpu: 6, gpu_by_type: {V100: 4}, memory: 16GiB, cpu: 0}
        state: draining
        queues:
          train: {order: skip, max_jobs: 3, max_waiting: 0, per_user: {gpu: 2}}
          dev:
      deep: {parent: x}
      x: {parent: research.dev, per_group: {gpu: 1}}
      turns: {time_slice: 90s, affinity: true, migrate: true, grow: 5min, pack: true}
      auto: {time_slice: auto}
      default:
"""


def test_queues_nest_and_may_name_their_parent() -> None:
    config = read(TREE)
    limit = amounts({"gpu": 6000, "gpu:V100": 4000, "memory": 16 << 30, "cpu": 0})
    assert config.tenants[0].queues == (
        Queue("research", limit=limit, state=QueueState.DRAINING),
        Queue(
            "research.train",
            QueueOrder.SKIP,
            parent="research",
            max_jobs=3,
            max_waiting=0,
            per_user=amounts({"gpu": 2000}),
        ),
        Queue("research.dev", parent="research"),
        Queue("research.dev.x", parent="research.dev", per_group=amounts({"gpu": 1000})),
        Queue("research.dev.x.deep", parent="research.dev.x"),
        Queue(
            "turns",
            rank=RankBy.ROUND_ROBIN,
            time_slice_ms=Millis(90_000),
            migrates=True,
            grow_ms=Millis(300_000),
            packs=True,
            by_affinity=True,
        ),
        Queue(
            "auto",
            rank=RankBy.ROUND_ROBIN,
            time_slice_ms=Millis(60_000),
            slices_by_cost=True,
        ),
        Queue("default"),
    )


def test_what_is_written_reads_back_the_same() -> None:
    config = read(TREE)
    text = json.dumps(config_to_wire(config)).encode()
    assert read_config(text, source="c.json", machine=None)[0] == config


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        (
            "      a: {parent: b}\n      b: {parent: a}\n",
            "line 5: tenants.lab.queues.a.parent: is inside itself: a in b in a (move one "
            "of them to the top)",
        ),
        (
            "      a: {parent: a}\n",
            "line 5: tenants.lab.queues.a.parent: is inside itself: a in a (move one of "
            "them to the top)",
        ),
        (
            "      train: {parent: resaerch}\n      research:\n",
            "line 5: tenants.lab.queues.train.parent: there is no queue resaerch (did you mean "
            "`research`?)",
        ),
        (
            "      a.b:\n      a: {queues: {b: {}}}\n",
            "line 6: tenants.lab.queues.a.queues.b: there is another queue a.b (rename one)",
        ),
        (
            "      a:\n        queues: {b: {parent: c}}\n",
            "line 6: tenants.lab.queues.a.queues.b.parent: is given, and b is inside a already "
            "(take it out)",
        ),
        (
            "      a: {limit: {gpu: 2}, per_user: {gpu: 4}}\n",
            "line 5: tenants.lab.queues.a.per_user: 4 GPUs for one user is more than the "
            "limit of the queue, 2 (lower `per_user`, or raise `limit`)",
        ),
        (
            "      a: {limit: {gpu: -1}}\n",
            "line 5: tenants.lab.queues.a.limit.gpu: ",
        ),
        (
            "      a: {state: shut}\n",
            "line 5: tenants.lab.queues.a.state: must be open, closed, draining or stopped",
        ),
        (
            "      a: {max_jobs: -1}\n",
            "line 5: tenants.lab.queues.a.max_jobs: ",
        ),
        (
            "      a: {queues: {b: {stat: open}}}\n",
            "line 5: tenants.lab.queues.a.queues.b.stat: there is no key `stat` here (did you "
            "mean `state`?)",
        ),
        (
            "      a: {time_slice: 10ms}\n",
            "line 5: tenants.lab.queues.a.time_slice: is too short (write 1s or more, or auto)",
        ),
        (
            "      a: {grow: 10ms}\n",
            "line 5: tenants.lab.queues.a.grow: is too short (write 1s or more; 5min is usual)",
        ),
        (
            "      a: {pack: true}\n",
            "line 5: tenants.lab.queues.a.pack: has no effect without time_slice (add "
            "time_slice: auto; gangs that take turns are the ones that are packed)",
        ),
        (
            "      a: {time_slice: 60s, rank: shortest}\n",
            "line 5: tenants.lab.queues.a.rank: cannot be used with time_slice (take it out: "
            "jobs that take turns come in the order of their turns)",
        ),
        (
            "      a: {per_user: {gpu: 0}}\n",
            "line 5: tenants.lab.queues.a.per_user.gpu: 0 is not a cap (leave it out, or give "
            "more)",
        ),
    ],
)
def test_what_does_not_add_up_is_named_with_its_place(queues: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(queues)
    assert f"c.yaml: {words}" in str(caught.value)


def test_in_cells_affinity_has_no_effect_and_that_is_said() -> None:
    text = (
        "hardware: [2 x dgx-v100 in racks of 2]\n"
        "tenants: {a: {cells: {dgx-v100-node: 2}, queues: {default: {affinity: true}}}}\n"
    )
    _, warnings = read_config(text.encode(), source="c.yaml", machine=None)
    assert any("default.affinity: has no effect" in str(each) for each in warnings)
