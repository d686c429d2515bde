"""Read models of what is registered in MLflow."""

import msgspec

from allotment.model.quantity import WallTime


class ModelRow(msgspec.Struct, frozen=True):
    """One line of `allot models`: the newest version of a registered model."""

    name: str
    version: str
    made_at: WallTime
    url: str
    run: str = ""
    job: int = 0
    """The job whose run made it; 0 where MLflow names none of this service's."""
    job_name: str = ""
    tenant: str = ""
    user: str = ""


class ModelRows(msgspec.Struct, frozen=True):
    """The registered models, the one changed last first."""

    items: tuple[ModelRow, ...]
    server: str
    """Where MLflow is."""
