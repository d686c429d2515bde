"""Where experiments are tracked, as the configuration says it."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, PlainValidator, model_validator

from allotment.model.tracking import MlflowSetup
from allotment.wire import amounts
from allotment.wire.amiss import Amiss
from allotment.wire.fields import LAST_PORT, Path, Truth, Word
from allotment.wire.job_shape import Shape
from allotment.wire.tree import Plain

MLFLOW_PORT = 5000


def _read_port(value: object) -> int:
    """Read a port that anybody may listen on."""
    return amounts.read_whole(value, 1024, LAST_PORT)


class MlflowShape(Shape):
    """Where experiments are tracked: a server at `url`, or one that the service starts."""

    url: Word = Field(default="", examples=["https://mlflow.example.org"])
    start: Truth = False
    port: Annotated[int, PlainValidator(_read_port)] | None = Field(
        default=None, examples=["5000"]
    )
    program: Path = Field(default="", examples=["/opt/mlflow/bin/mlflow"])

    @model_validator(mode="after")
    def _one_of_both(self) -> "MlflowShape":
        if self.url and self.start:
            raise Amiss("is given beside `url`", "leave one of them out", at=("start",))
        if not self.url and not self.start:
            raise Amiss(
                "says neither where a server is nor that one starts",
                "write url: https://mlflow.example.org, or start: true",
            )
        for key in ("port", "program"):
            if self.url and getattr(self, key):
                message = "is for a server that the service starts"
                raise Amiss(message, "take it out, or `url`", at=(key,))
        if self.program and not self.program.startswith("/"):
            raise Amiss("is not an absolute path", "/opt/mlflow/bin/mlflow", at=("program",))
        if self.url and (trouble := _wrong_url(self.url)):
            raise Amiss(trouble, "write it like https://mlflow.example.org", at=("url",))
        return self


def _wrong_url(url: str) -> str:
    """Return why MLflow cannot be at an address; '' where it can."""
    try:
        place = urlsplit(url)
        port = place.port
    except ValueError:
        return "is not an address"
    if place.scheme not in ("http", "https") or not place.hostname or port == 0:
        return "is not an address of HTTP"
    if place.username is not None or place.password is not None:
        return "has a password, which every job would see"
    if place.query or place.fragment or any(c in url for c in "?#\\"):
        return "has more than a host, a port and a path"
    return ""


def mlflow_of(shape: MlflowShape | None) -> MlflowSetup | None:
    """Return which server there is; None for none."""
    if shape is None:
        return None
    if shape.url:
        return MlflowSetup(shape.url.rstrip("/"))
    return MlflowSetup("", shape.port or MLFLOW_PORT, shape.program)


def mlflow_to_wire(setup: MlflowSetup) -> dict[str, Plain]:
    """Return a server as the configuration writes it."""
    if setup.url:
        return {"url": setup.url}
    program: dict[str, Plain] = {"program": setup.program} if setup.program else {}
    return {"start": True, "port": setup.port, **program}
