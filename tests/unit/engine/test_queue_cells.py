"""Queues of a tenant whose share is cells: what was lent between them comes back in cells."""

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.reasons import Reason
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.world import World
from tests.unit.engine.test_queue_shares import end_some, held, run_all, settle, waits


def lab(queues: str, cells: str = "8xV100-node: 2", more: str = "", machines: int = 2) -> World:
    """A cluster of machines with eight devices each, two in a rack."""
    text = (
        f'hardware: ["{machines} x 8xV100 in racks of 2"]\n'
        f"tenants:\n  lab: {{cells: {{{cells}}}, queues: {{{queues}}}}}\n{more}"
    )
    config, _ = read_config(text.encode(), source="c.yaml", machine=None)
    return World(config)


def submit(
    world: World, queue: str, gpus: int, count: int = 1, tasks: int = 1, tenant: str = "lab"
) -> list[JobId]:
    job = a_job().of(tenant, queue).tasks(tasks).gpus(gpus)
    return [world.submit(job) for _ in range(count)]


def nodes_of(world: World, jobs: list[JobId]) -> set[int]:
    placed = [world.job(job).attempts[-1] for job in jobs]
    return {slot.node for attempt in placed for slot in attempt.slots}


def own(world: World) -> set[JobId]:
    """Name who holds cells that are its tenant's own."""
    return {
        gang.id
        for gang in world.state.cluster.gangs.values()
        if gang.entitlement is Entitlement.GUARANTEED and gang.quota
    }


TWO = "a: {guaranteed: {gpu: 8}}, b: {guaranteed: {gpu: 8}}"


def test_a_whole_cell_that_was_lent_comes_back() -> None:
    world = lab(TWO)
    first, second = submit(world, "a", 8, count=2)
    run_all(world)
    assert own(world) == {first, second}
    (asks,) = submit(world, "b", 8)
    assert settle(world) == [second], "the newest of the queue that is beyond its own"
    assert own(world) == {first, asks}
    assert nodes_of(world, [first]) != nodes_of(world, [asks])
    assert world.is_(second).value == "queued"


def test_small_gangs_make_room_for_a_cell_all_on_one_machine() -> None:
    world = lab(TWO)
    jobs = submit(world, "a", 1, count=16)
    run_all(world)
    assert held(world) == {"a": 16}
    (asks,) = submit(world, "b", 8)
    gone = settle(world)
    assert held(world) == {"a": 8, "b": 8}
    assert len(gone) == 8, "no more than it needs"
    stay = [job for job in jobs if job not in gone]
    assert len(nodes_of(world, [asks])) == 1
    assert nodes_of(world, [asks]).isdisjoint(nodes_of(world, stay))


def test_devices_that_are_free_here_and_there_are_no_cell() -> None:
    # Half of each machine is free: enough in number, and no room for eight on one.
    world = lab(TWO)
    jobs = submit(world, "a", 1, count=16)
    run_all(world)
    by_node = [[job for job in jobs if nodes_of(world, [job]) == {node}] for node in (0, 1)]
    for on_it in by_node:
        for job in on_it[:4]:
            world.ends(job)
    (asks,) = submit(world, "b", 8)
    gone = settle(world)
    # `a` is at its guarantee, not beyond: nobody of it has to go.
    assert gone == []
    assert world.is_(asks).value == "queued"
    assert held(world) == {"a": 8}


def test_a_gang_by_more_than_which_its_queue_is_not_beyond_stays() -> None:
    world = lab("a: {guaranteed: {gpu: 10}}, b: {guaranteed: {gpu: 6}}")
    (gang,) = submit(world, "a", 8, tasks=2)
    run_all(world)
    assert held(world) == {"a": 16}
    (asks,) = submit(world, "b", 6)
    assert settle(world) == []
    assert own(world) == {gang}
    blocked = world.why(asks)
    assert blocked.reason is Reason.CAPACITY
    assert f"2 in use by job {gang}." in blocked.message


def test_borrowers_go_before_siblings() -> None:
    world = lab(TWO, more="  else: {}\n")
    (older,) = submit(world, "a", 8)
    run_all(world)
    (borrower,) = submit(world, "default", 8, tenant="else")
    run_all(world)
    (asks,) = submit(world, "b", 8)
    assert settle(world) == [borrower]
    assert own(world) == {older, asks}


def test_a_job_that_makes_room_goes_on_where_cells_of_others_are_idle() -> None:
    world = lab(TWO, more="  else: {cells: {8xV100-rack: 1}}\n", machines=4)
    first, second = submit(world, "a", 8, count=2)
    run_all(world)
    submit(world, "b", 8)
    settle(world)
    run_all(world)
    assert {job for job in (first, second) if world.job(job).attempt is not None} == {
        first,
        second,
    }
    assert held(world) == {"a": 16, "b": 8}


def test_a_queue_inside_a_queue_gets_its_cell_back() -> None:
    world = lab(
        "a: {guaranteed: {gpu: 16}, queues: {x: {guaranteed: {gpu: 8}}, y: {}}}, c: {}",
    )
    jobs = submit(world, "y", 8, count=2)
    run_all(world)
    (asks,) = submit(world, "x", 8)
    assert settle(world) == jobs[1:]
    assert own(world) == {jobs[0], asks}


QUEUES = {"a": (6, 12), "b.x": (4, 16), "b.y": (2, 8), "c": (0, 16)}
"""Guarantee and limit of each."""
FOREST = """
  a: {order: skip, guaranteed: {gpu: 6}, limit: {gpu: 12}},
  b: {guaranteed: {gpu: 8}, queues: {
    x: {order: skip, guaranteed: {gpu: 4}},
    y: {order: skip, guaranteed: {gpu: 2}, limit: {gpu: 8}}}},
  c: {order: skip}""".replace("\n", " ")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["submit", "submit", "submit", "end", "cycle"]),
            st.sampled_from(list(QUEUES)),
            st.integers(1, 6),
        ),
        max_size=25,
    )
)
def test_in_cells_too_limits_hold_and_every_guarantee_can_be_had(
    steps: list[tuple[str, str, int]],
) -> None:
    world = lab(FOREST)
    for what, queue, number in steps:
        if what == "submit":
            submit(world, queue, 1, count=number)
        elif what == "end":
            end_some(world, queue, number)
        else:
            settle(world)
            run_all(world)
        for name, most in held(world).items():
            assert most <= QUEUES[name][1]
    settle(world)
    have = held(world)
    for name, (guaranteed, limit) in QUEUES.items():
        if waits(world, name):
            assert have.get(name, 0) >= guaranteed
            assert sum(have.values()) == 16 or have.get(name, 0) == limit
    if waits(world, "b.x"):
        assert have.get("b.x", 0) + have.get("b.y", 0) >= 8
