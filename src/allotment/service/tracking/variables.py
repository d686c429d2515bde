"""What a job is told of MLflow: where it is, and with which tags the runs it makes begin.

MLflow's own client reads both from the environment (`MLFLOW_RUN_CONTEXT` is a JSON object of
tags). So a run says which job made it, and nobody asks MLflow anything while a job starts.
"""

import json
from collections.abc import Mapping

from allotment.engine.records import JobRecord
from allotment.model.tracking import MlflowSetup

JOB, SUBMITTED, ATTEMPT = "allotment.job", "allotment.submitted", "allotment.attempt"
_LONGEST = 500
"""Letters of a tag: MLflow takes some thousands, and an environment has to hold them all."""


def variables_of(job: JobRecord, setup: MlflowSetup | None, last_run: str) -> Mapping[str, str]:
    """Return what each task of a job finds in its environment; nothing without a server.

    `last_run` is the newest run of its earlier attempts; '' where none is known.
    """
    if setup is None:
        return {}
    found = {
        "MLFLOW_TRACKING_URI": setup.address,
        "MLFLOW_RUN_CONTEXT": json.dumps(_tags(job), separators=(",", ":")),
    }
    return found | {"ALLOT_MLFLOW_LAST_RUN": last_run} if last_run else found


def _tags(job: JobRecord) -> dict[str, str]:
    spec, code = job.running_as, job.spec.code
    told = {
        JOB: str(job.id),
        SUBMITTED: str(job.submitted_at),
        ATTEMPT: str(job.attempts[-1].no),
        "allotment.name": spec.name,
        "allotment.tenant": spec.tenant,
        "allotment.user": job.owner.user,
        "allotment.image": spec.image,
        "allotment.environment": spec.environment.key if spec.environment else "",
        "allotment.code": code.bundle if code else "",
        "allotment.commit": code.commit if code else "",
        "allotment.changed_files": str(code.changed) if code and code.changed else "",
        "allotment.data": ", ".join(map(str, spec.data)) or spec.data_dir,
    }
    return {name: value[:_LONGEST] for name, value in told.items() if value}
