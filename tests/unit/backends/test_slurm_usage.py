"""What others use of Slurm's nodes, of what is allocated there and of what is ours."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from allotment.backends.contact import Contact
from allotment.backends.slurm import client
from allotment.backends.slurm.nodes import NodeWatch
from allotment.backends.slurm.status import Row, Rows
from allotment.backends.slurm.usage import NodeLine, devices_of, lines_of, mib_of, others_on
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import MIB
from allotment.model.reports import OthersReport
from allotment.service.ports import Report

OURS = "allot-ab"


def a_line(cpus: int = 0, memory: int = 0, **gpus: int) -> NodeLine:
    used = {"cpu": cpus, "memory": memory, **gpus}
    return NodeLine("n1", "mixed", "8", "2000", "gpu:a100:4", "none", used)


def a_job(number: int, state: str = "RUNNING", *, cpus: int = 1, **more: str) -> Row:
    told = {"memory": "64M", "gres": "gres:gpu:a100:1", "name": f"{OURS}-{number}.1.0"} | more
    return Row(str(number), 0, state, "None", "n1", cpus=cpus, **told)


def rows(*jobs: Row) -> Rows:
    return {(job.name, job.uid): job for job in jobs}


def found(line: NodeLine, before: Rows, after: Rows, known: Others = NOBODY) -> Others:
    return others_on([line], before, after, OURS, {"n1": known})["n1"]


def test_lines_are_read_and_what_stands_in_reasons_is_not() -> None:
    first, second = lines_of(
        "n1|mixed|3/1/0/4|2000|150|gpu:a100:4|gpu:a100:2(IDX:0-1)|none|\n"
        "n2|draining|1/0/3/4|2000|50|gpu:a100:4(S:0-1)|gpu:(null):1(IDX:0)|bad | fan\n"
        "n9|x\n|\n"
    )
    assert first.used == {"cpu": 3, "memory": 150, "a100": 2}
    assert second.used == {"cpu": 1, "memory": 50, "gpu": 1}
    assert second.reason == "bad | fan"


def test_only_what_calls_for_a_closer_look_is_a_change() -> None:
    def standing(state: str, reason: str = "none") -> tuple[str, ...]:
        text = f"n1|{state}|3/1/0/4|2000|150|gpu:4|gpu:2|{reason}|"
        return lines_of(text)[0].standing

    assert standing("mixed") == standing("idle") == standing("allocated")
    assert len({standing(s) for s in ("idle", "idle*", "draining", "drained", "down")}) == 5
    assert standing("drained", "a") != standing("drained", "b")


def test_devices_and_memory_are_read_in_all_forms() -> None:
    assert devices_of("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2),nic:4") == {"a100": 2, "v100": 1}
    assert devices_of("gres/gpu:a100:2") == devices_of("gres:gpu:a100:2") == {"a100": 2}
    assert devices_of("gpu:(null):0(IDX:N/A)") == {"gpu": 0}
    assert devices_of("N/A") == {}
    assert [mib_of(s) for s in ("64M", "2G", "2048K", "1T", "7", "N/A")] == [
        64, 2048, 2, 1 << 20, 7, 0,
    ]  # fmt: skip


def test_what_is_allocated_and_not_ours_is_others() -> None:
    mine = rows(a_job(1), a_job(2))
    line = a_line(5, 128 + 100, a100=3)
    expected = Others((("a100", 1),), 3_000, 100 * MIB, "Slurm")
    assert found(line, mine, mine) == expected
    assert found(a_line(2, 128, a100=2), mine, mine, expected) == NOBODY


def test_jobs_of_others_do_not_count_as_ours() -> None:
    theirs = rows(a_job(1, name="allot-cd-1.1.0"))
    assert found(a_line(1, 64, a100=1), theirs, theirs).devices == (("a100", 1),)


def test_devices_of_ours_whose_type_nobody_asked_for_are_some_of_those() -> None:
    mine = rows(a_job(1, gres="gres:gpu:2"))
    assert found(a_line(1, 64, a100=3), mine, mine).devices == (("a100", 1),)
    assert found(a_line(1, 64, gpu=3), mine, mine).devices == (("", 1),)


def test_a_job_that_started_or_ended_between_the_looks_is_nobody_elses() -> None:
    some = Others((("a100", 1),), 1_000, 64 * MIB, "Slurm")
    none, runs = rows(), rows(a_job(1))
    waits, ends = rows(a_job(1, "PENDING")), rows(a_job(1, "COMPLETED"))
    leaves = rows(a_job(1, "COMPLETING"))
    for before, after in ((none, runs), (waits, runs), (runs, ends), (runs, leaves)):
        for ours in (0, 1):  # Whether it was there when nodes were looked at.
            for theirs, known in product((0, 1), repeat=2):
                count = ours + theirs
                told = found(
                    a_line(count, 64 * count, a100=count),
                    before,
                    after,
                    some if known else NOBODY,
                )
                if theirs == known:
                    assert told == (some if known else NOBODY)


@given(
    theirs=st.integers(0, 3),
    known=st.integers(0, 6),
    jobs=st.lists(
        st.tuples(
            st.sampled_from(("", "PENDING", "RUNNING")),
            st.sampled_from(("PENDING", "RUNNING", "COMPLETING", "COMPLETED")),
            st.booleans(),
        ),
        max_size=3,
    ),
)
def test_what_is_known_never_leaves_its_bounds(
    theirs: int, known: int, jobs: list[tuple[str, str, bool]]
) -> None:
    """It is right where all our jobs ran on, and else not further off than what moved."""
    before = rows(*(a_job(n, how) for n, (how, _, _) in enumerate(jobs) if how))
    after = rows(*(a_job(n, how) for n, (_, how, _) in enumerate(jobs)))
    there = sum(
        was == now == "RUNNING" or (seen and now != "PENDING") for was, now, seen in jobs
    )
    moving = sum((was, now) != ("RUNNING", "RUNNING") for was, now, _ in jobs)
    told = found(a_line(theirs + there), before, after, Others(cpu_milli=known * 1000))
    assert abs(told.cpu_milli // 1000 - theirs) <= moving


def test_a_node_that_left_and_came_back_is_told_of_again() -> None:
    """Also where it was away between two looks only: its id is another one then."""
    told: list[Report] = []
    nodes = [Node(NodeId(0), "n1", 8_000, 2000 * MIB, MIB, ())]
    watch = NodeWatch(client, lambda: nodes, "gpu", Contact("Slurm", "jobs"), told.append)
    line, use = a_line(2, 100), Others((), 2_000, 100 * MIB, "Slurm")
    for _ in range(2):
        watch.tell_others([line], {}, {}, OURS)
    assert told == [OthersReport(NodeId(0), use)]
    nodes[0] = Node(NodeId(1), "n1", 8_000, 2000 * MIB, MIB, ())
    watch.tell_others([line], {}, {}, OURS)
    assert told[1:] == [OthersReport(NodeId(1), use)]
    nodes.clear()
    watch.tell_others([line], {}, {}, OURS)
    nodes.append(Node(NodeId(1), "n1", 8_000, 2000 * MIB, MIB, ()))
    watch.tell_others([line], {}, {}, OURS)
    assert told[2:] == [OthersReport(NodeId(1), use)]
