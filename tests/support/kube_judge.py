"""The checker of what came of a Kubernetes that was broken under load.

It knows events, marks and pods, and nothing of the services.
"""

from collections import Counter
from typing import Any, NamedTuple

from tests.support.chaos import Told, check, count_devices, story
from tests.support.pod_witness import Findings

HERE = "team-a"
"""The namespace of others, in which the first service places."""
Tree = dict[str, Any]


class Play(NamedTuple):
    """All that came of it."""

    told: dict[str, Told]
    """By service."""
    accepted: dict[str, list[int]]
    struck: set[str]
    prefixes: dict[str, str]
    findings: Findings
    gangs: list[str]
    jobs: list[str]
    theirs: str
    """The marks of pods of others."""


def judge(played: Play) -> None:
    """Fail where something was lost, done twice, or bound in part."""
    assert not played.findings.wrong, played.findings.wrong
    for whose, told in played.told.items():
        accepted = played.accepted[whose]
        mine = [event for event in told.events if event.get("job") in {*accepted}]
        struck = attempts(played.struck, played.prefixes[whose]) | stopped(mine)
        check(Told(mine, told.marks), accepted, struck)
        count_devices(told)
    judge_others(played)


def attempts(struck: set[str], prefix: str) -> set[tuple[int, int]]:
    """Return the attempts of a service of which a pod was struck: PREFIX-JOB-ATTEMPT-TASK."""
    names = [name.partition("/")[2] for name in struck]
    mine = [name.removeprefix(prefix).split("-") for name in names if name.startswith(prefix)]
    return {(int(job), int(attempt)) for _, job, attempt, _ in mine}


def stopped(events: list[Tree]) -> set[tuple[int, int]]:
    """Return the attempts that were told to end: one may be done meanwhile, and is done again,
    as an eviction or a late start is what it ended for."""
    found = [event for event in events if event["kind"] == "StopRequested"]
    return {(event["job"], event["detail"]["attempt"]) for event in found}


def judge_others(played: Play) -> None:
    """Pods of others: each ran once at most; each that nobody touched ended well."""
    marks = Counter(played.theirs.splitlines())
    assert not [mark for mark in marks if mark.startswith("twice")], played.theirs
    again = {mark: count for mark, count in marks.items() if count > 1}
    assert not again, f"a pod ran twice: {again}"
    excused = played.struck | played.findings.excused
    for gang in played.gangs:
        pods = [f"{gang}-{pod}" for pod in (0, 1)]
        if not excused & {f"{HERE}/{pod}" for pod in pods}:
            for pod in pods:
                assert marks[f"end {pod}"] == 1, f"{pod} did not end: {told_of(played, gang)}"
    ends = Counter(
        mark.partition(" ")[2].rpartition("-")[0] for mark in marks if mark.startswith("end")
    )
    for job in played.jobs:
        assert ends[job] >= 1, f"Job {job} was not done"
        touched = [name for name in excused if name.startswith(f"{HERE}/{job}-")]
        assert ends[job] <= 1 + len(touched), f"Job {job} was done {ends[job]} times"


def told_of(played: Play, gang: str) -> str:
    """Return what the services say of a gang of others."""
    jobs = {
        (told, event["job"])
        for told, each in played.told.items()
        for event in each.events
        if event["kind"] == "JobSubmitted" and f"{HERE}/{gang}" in str(event)
    }
    return "\n".join(story(played.told[told], job) for told, job in sorted(jobs))
