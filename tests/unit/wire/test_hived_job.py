"""HiveD's pod scheduling spec, read into a job."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.quantity import CPU, GIB, Resources
from allotment.model.spec import JobSpec, TaskRole
from allotment.wire.hived_job import HivedJob, read_pod_spec
from allotment.wire.hived_nodes import Share

WHOLE = """\
virtualCluster: vc1
priority: 7
pinnedCellId: OWN
leafCellType: V100
leafCellNumber: 8
lazyPreemptionEnable: true
affinityGroup:
  name: default/train
  members:
  - {podNumber: 2, leafCellNumber: 8}
  - {podNumber: 1, leafCellNumber: 4}
  - {podNumber: 3, leafCellNumber: 8}
"""


def read(text: str) -> HivedJob:
    return read_pod_spec(
        text.encode(), source="pod", name="lone", command="run", share=Share(2 * CPU, GIB)
    )


def role(leaves: int, count: int, *types: str) -> TaskRole:
    held = Resources(leaves * 1000, leaves * 2000, leaves * GIB)
    return TaskRole(f"pods-{leaves}", count, "run", held, types)


def test_a_group_is_a_job_and_its_members_are_roles() -> None:
    found = read(WHOLE)
    assert found.spec == JobSpec(
        "default-train",
        "vc1",
        (role(8, 5, "V100"), role(4, 1, "V100")),
        priority=7,
        preemptible=False,
        pin="OWN",
    )
    assert found.lazy
    assert [str(warning) for warning in found.warnings] == [
        "line 8: affinityGroup.name: the job default/train is called default-train here"
    ]


def test_a_pod_alone_is_a_job_of_one_task() -> None:
    found = read("{virtualCluster: a, priority: -1, leafCellNumber: 2}")
    assert found.spec == JobSpec(
        "lone", "a", (role(2, 1),), priority=0, preemptible=True, opportunistic=True
    )
    assert (found.warnings, found.lazy) == ((), False)


def test_old_names_are_read() -> None:
    old = WHOLE.replace("leafCellType", "gpuType").replace("leafCellNumber", "gpuNumber")
    assert read(old) == read(WHOLE)


def test_what_has_no_effect_is_told() -> None:
    text = "virtualCluster: a\nleafCellNumber: 1\ngangReleaseEnable: true\n"
    text += "ignoreK8sSuggestedNodes: false\nx: 1\n"
    assert [warning.path for warning in read(text).warnings] == [
        "gangReleaseEnable", "ignoreK8sSuggestedNodes", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("leafCellNumber: 1", "virtualCluster: is missing"),
        ("virtualCluster: a", "leafCellNumber: is missing"),
        ("{virtualCluster: a, leafCellNumber: 0}", "leafCellNumber: must be at least 1"),
        ("{virtualCluster: a, leafCellNumber: 1, priority: 1001}", "priority: 1001 is more"),
        ("{virtualCluster: a, leafCellNumber: 1, priority: -2}", "priority: must be at least"),
        ("{virtualCluster: a, leafCellNumber: 1, priority: -1, pinnedCellId: P}",
         "pinnedCellId: an opportunistic pod has no pinned cell"),
        (WHOLE.replace("leafCellNumber: 8\nl", "leafCellNumber: 2\nl"),
         "affinityGroup.members: has no member of 2 leaf cells"),
        (WHOLE.replace("podNumber: 1", "podNumber: 0"),
         "affinityGroup.members[1].podNumber: must be at least 1"),
    ],
)  # fmt: skip
def test_what_hived_refuses_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(text)
    assert any(
        str(each).partition(": ")[2].startswith(problem) for each in caught.value.problems
    )
