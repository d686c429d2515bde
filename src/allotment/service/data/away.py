"""A folder that an administrator registered, and that a node cannot open, is told as that."""

import re
from typing import Final

from msgspec.structs import replace

from allotment.engine.exit_codes import FOLDER_AWAY
from allotment.engine.log_scan import printable
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.datasets import DataKind
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.ids import TaskIndex

_TOLD: Final = re.compile(r"the data for (/.*?) cannot be opened: (.*)")
"""What nodes say, whatever runs the tasks there."""


def folder_away(
    state: State, job: JobRecord, index: TaskIndex, exit_: Exit
) -> Diagnosis | None:
    """Return why a task did not start, where that is a folder; None where it is something else.

    Other users see none of its names: they are in the evidence alone.
    """
    told = _TOLD.search(exit_.platform_error)
    if told is None or not job.attempts:
        return None
    use = next((each for each in job.spec.data if each.at == told[1] and not each.digest), None)
    dataset = state.datasets.get((use.tenant, use.name)) if use is not None else None
    if dataset is None or dataset.kind is not DataKind.FOLDER:
        return None
    node = state.cluster.nodes[job.attempts[-1].slots[index].node].name
    what = f"{dataset.folder} on {node}, which is {dataset.full}: {told[2]}"
    return replace(FOLDER_AWAY, evidence=printable(what))
