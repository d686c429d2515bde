"""What tasks wait for to begin, or to be over: what is brought or prepared, and what was killed
and lives.

All of it is told again after a restart of the service, so it is in no log.
"""

from collections.abc import Mapping

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ids import JobId, TaskKey
from allotment.model.lifecycle import TaskState
from allotment.model.reports import TaskReport
from allotment.service.queries import node_name, task_name
from allotment.service.views import NodeView

NOTHING_RUNS = (TaskState.PLACED, TaskState.READY, TaskState.ENDED)


class HeldUp:
    """Keeps what was last told of each such task, and adds it to views."""

    def __init__(self, state: State, brought: Mapping[JobId, str]) -> None:
        """`brought` is what is brought for jobs before any task of them is launched."""
        self._state, self._brought = state, brought
        self._told: dict[TaskKey, str] = {}

    def hear(self, report: TaskReport) -> None:
        if report.held_up:
            self._told[report.key] = report.held_up
        else:
            self._told.pop(report.key, None)

    def of_job(self, job: JobRecord) -> tuple[str, ...]:
        """Return what a job waits for, or which of its tasks do."""
        brought = self._brought.get(job.id)
        tasks = [
            f"{task_name(job.spec, key.index)}: {words}"
            for key, words in self._told.items()
            if key.job == job.id and self._state_of(key) is not TaskState.ENDED
        ]
        return (brought, *tasks) if brought else tuple(tasks)

    def on_node(self, node: NodeView) -> NodeView:
        """Add the jobs that keep their places there though they were killed."""
        jobs = dict.fromkeys(
            key.job
            for key in self._told
            if self._state_of(key) not in NOTHING_RUNS and self._node_of(key) == node.name
        )
        told = [
            f"job {job} keeps its place: killed processes of it do not die (`allot show {job}`)"
            for job in jobs
        ]
        words = "; ".join([*filter(None, [node.trouble]), *told])
        return msgspec.structs.replace(node, trouble=words) if told else node

    def _state_of(self, key: TaskKey) -> TaskState:
        """Return how a task stands; one of an earlier attempt has ended."""
        job = self._state.jobs.get(key.job)
        attempt = job.attempt if job else None
        is_present = attempt is not None and attempt.no == key.attempt
        return attempt.task(key.index).state if attempt and is_present else TaskState.ENDED

    def _node_of(self, key: TaskKey) -> str:
        slots = self._state.jobs[key.job].attempts[-1].slots
        return node_name(self._state, slots[key.index].node)
