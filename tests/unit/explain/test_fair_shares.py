"""Textbook cases of dominant resource fairness."""

from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest

from allotment.explain.claims import Claim, Grant, Quantities
from allotment.explain.fair_shares import fluid
from tests.support.whole_shares import whole

Divide = Callable[[Quantities, Claim], Mapping[str, Grant]]
BOTH = pytest.mark.parametrize("divide", [fluid, whole])


def all_of(*parts: Claim) -> Claim:
    return Claim("cluster", parts=parts)


def tasks(divide: Divide, capacity: Quantities, *parts: Claim) -> dict[str, Fraction]:
    """Return the tasks of every claim that has some."""
    found = divide(capacity, all_of(*parts))
    return {name: grant.tasks for name, grant in found.items() if grant.tasks}


@BOTH
def test_the_example_of_the_paper(divide: Divide) -> None:
    """9 CPU and 18 GB: three tasks of <1, 4> and two of <3, 1>; both have two thirds."""
    found = divide((9, 18), all_of(Claim("A", (1, 4)), Claim("B", (3, 1))))
    assert (found["A"].tasks, found["B"].tasks) == (3, 2)
    assert found["A"].share == found["B"].share == Fraction(2, 3)
    assert found["cluster"].held == (9, 14)


@BOTH
def test_of_one_resource_it_is_max_min(divide: Divide) -> None:
    found = tasks(divide, (12,), Claim("A", (1,), 2), Claim("B", (1,)), Claim("C", (1,)))
    assert found == {"A": 2, "B": 5, "C": 5}


@BOTH
def test_a_job_of_memory_and_one_of_gpus_do_not_hinder_each_other(divide: Divide) -> None:
    """Of 8 GPUs and 512 GB each takes three quarters of what it wants most."""
    cluster = (8, 512)
    found = tasks(divide, cluster, Claim("memory", (1, 192)), Claim("gpu", (3, 64)))
    assert found == {"memory": 2, "gpu": 2}
    shares = fluid(cluster, all_of(Claim("memory", (1, 192)), Claim("gpu", (3, 64))))
    assert shares["memory"].share == shares["gpu"].share == Fraction(3, 4)


@BOTH
def test_weights(divide: Divide) -> None:
    one = Claim("one", (1, 1))
    found = tasks(divide, (12, 100), one, Claim("two", (1, 4), weight=2))
    assert found["two"] == 2 * found["one"] == 8


@BOTH
def test_when_one_resource_runs_out_others_go_on(divide: Divide) -> None:
    """Two want CPU, which is gone at half each; who wants memory has all of it."""
    parts = (Claim("A", (1, 0)), Claim("B", (1, 0)), Claim("C", (0, 1)))
    assert tasks(divide, (10, 10), *parts) == {"A": 5, "B": 5, "C": 10}


@BOTH
def test_a_cap_leaves_the_rest_to_others(divide: Divide) -> None:
    found = tasks(divide, (12, 12), Claim("A", (1, 1), limit=(2, 12)), Claim("B", (1, 1)))
    assert found == {"A": 2, "B": 10}


@BOTH
def test_guarantees_are_floors_not_additions(divide: Divide) -> None:
    """A has 8 of 16 by its guarantee; B and C share the rest, A waits until they are level."""
    a, b, c = Claim("A", (1,), guaranteed=(8,)), Claim("B", (1,)), Claim("C", (1,))
    assert tasks(divide, (16,), a, b, c) == {"A": 8, "B": 4, "C": 4}
    assert tasks(divide, (16,), a, b) == {"A": 8, "B": 8}
    assert tasks(divide, (20,), a, b) == {"A": 10, "B": 10}


@BOTH
def test_a_guarantee_that_is_not_asked_for_is_lent(divide: Divide) -> None:
    a, b = Claim("A", (1,), 3, guaranteed=(8,)), Claim("B", (1,))
    assert tasks(divide, (16,), a, b) == {"A": 3, "B": 13}


@BOTH
def test_hierarchy_divides_by_branch_then_inside(divide: Divide) -> None:
    team = Claim("team", parts=(Claim("x", (1,)), Claim("y", (1,)), Claim("z", (1,))))
    found = tasks(divide, (18,), team, Claim("alone", (1,)))
    assert found == {"x": 3, "y": 3, "z": 3, "alone": 9}


@BOTH
def test_no_branch_starves_beside_one_that_goes_on_alone(divide: Divide) -> None:
    """SoCC '13, 3.2: n2's second part takes all GPUs, and n2's first keeps half the CPUs."""
    n2 = Claim("n2", parts=(Claim("n2.1", (1, 0)), Claim("n2.2", (0, 1))))
    found = tasks(divide, (10, 10), Claim("n1", (1, 0)), n2)
    assert found == {"n1": 5, "n2.1": 5, "n2.2": 10}


@BOTH
def test_guarantees_and_caps_of_branches(divide: Divide) -> None:
    team = Claim(
        "team", parts=(Claim("x", (1,), guaranteed=(4,)), Claim("y", (1,))), limit=(6,),
    )  # fmt: skip
    assert tasks(divide, (20,), team, Claim("B", (1,), 100)) == {"x": 4, "y": 2, "B": 14}


def test_parts_of_tasks_are_exact() -> None:
    found = fluid((10, 10), all_of(Claim("A", (3, 1)), Claim("B", (1, 3))))
    assert found["A"].tasks == found["B"].tasks == Fraction(5, 2)
    assert whole((10, 10), all_of(Claim("A", (3, 1)), Claim("B", (1, 3))))["A"].tasks == 2


def test_dynamic_shares() -> None:
    """As claimants come and go each has what is fair among those that are there."""
    a, b, c = (Claim(name, (1, 1)) for name in "ABC")
    assert fluid((6, 6), all_of(a))["A"].tasks == 6
    assert fluid((6, 6), all_of(a, b))["A"].tasks == 3
    assert fluid((6, 6), all_of(a, b, c))["A"].tasks == 2
    assert fluid((6, 6), all_of(b, c))["B"].tasks == 3


@BOTH
def test_what_the_cluster_does_not_have_nobody_gets(divide: Divide) -> None:
    assert tasks(divide, (8, 0), Claim("gpu", (1, 1)), Claim("cpu", (1, 0))) == {"cpu": 8}
    assert tasks(divide, (0, 0), Claim("cpu", (1, 0))) == {}


@pytest.mark.parametrize(
    ("capacity", "claim", "said"),
    [
        ((1,), Claim("A", (1,), weight=0), "weight 0"),
        ((1,), Claim("A", (0,)), "either needs something or has parts"),
        ((1,), Claim("A", (1,), parts=(Claim("B", (1,)),)), "either needs something"),
        ((1,), Claim("A", (1, 2)), "need (1, 2) is not 1 amounts"),
        ((1,), Claim("A", (1,), guaranteed=(-1,)), "guaranteed"),
        ((1,), Claim("A", (1,), -1), "wants -1 tasks"),
        ((-1,), Claim("A", (1,)), "capacity is negative"),
        ((1,), Claim("A", parts=(Claim("A", (1,)),)), "two claims have this name"),
    ],
)
def test_nonsense_is_refused(capacity: Quantities, claim: Claim, said: str) -> None:
    for divide in (fluid, whole):
        with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
            divide(capacity, claim)
