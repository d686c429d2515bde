"""HiveD's configuration (microsoft/hivedscheduler, `hivedscheduler.yaml`), as pydantic models.

Its names are texts whatever they look like: an address may be written 8, a type N. So
everything is read as it was written, and only counts are turned into numbers.
"""

from collections.abc import Mapping
from typing import Annotated, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from allotment.wire import amounts
from allotment.wire.amiss import not_a
from allotment.wire.fields import Line, SizeOrNone, Word


def read_number(value: object) -> int:
    """Read a count that is still text."""
    text = value if isinstance(value, str) else ""
    if not text.lstrip("-").isdecimal() or len(text) > 10:
        raise not_a("a whole number", value)
    return amounts.read_whole(int(text), 0, 1_000_000)


def read_parts(value: object) -> int:
    """Read of how many cells a cell is made."""
    return amounts.read_whole(read_number(value), 1, 100_000)


def read_flag(value: object) -> bool:
    """Read true or false that is still text."""
    if value not in ("true", "false", "True", "False", "TRUE", "FALSE"):
        raise not_a("true or false", value)
    return str(value).lower() == "true"


def read_cpus(value: object) -> int:
    """Read CPUs into thousandths; 0 is a number too."""
    return 0 if value == "0" else amounts.read_cpu(value)


def _nothing(value: object) -> object:
    """Take an empty value for one that was left out."""
    return {} if value is None else value


def _no_items(value: object) -> object:
    return [] if value is None else value


def _no_text(value: object) -> object:
    return "" if value is None else value


Number = Annotated[int, PlainValidator(read_number)]
Parts = Annotated[int, PlainValidator(read_parts)]
Flag = Annotated[bool, PlainValidator(read_flag)]
Text = Annotated[Line, BeforeValidator(_no_text)]


class Lenient(BaseModel):
    """A map in which unknown keys are kept, to be told about."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=False)


class HivedCellType(Lenient):
    """So many of a child that lie together."""

    child: Word = Field(alias="childCellType")
    count: Parts = Field(alias="childCellNumber")
    is_node: Flag = Field(False, alias="isNodeLevel")


class HivedCell(Lenient):
    """A physical cell; what is left out follows from its type and place."""

    type: Text = Field("", alias="cellType")
    address: Text = Field("", alias="cellAddress")
    pin: Text = Field("", alias="pinnedCellId")
    children: Annotated[list["HivedChild"], BeforeValidator(_no_items)] = Field(
        default=[], alias="cellChildren"
    )


HivedChild = Annotated[HivedCell, BeforeValidator(_nothing)]


class HivedSku(Lenient):
    """What goes with one unit of a device type."""

    gpu: Number = 0
    cpu: Annotated[int, PlainValidator(read_cpus)] = 0
    memory: SizeOrNone = 0


def _renamed(value: object) -> object:
    """Return `gpuTypes` of earlier versions its new name."""
    if isinstance(value, dict) and "gpuTypes" in value and "skuTypes" not in value:
        inner = cast("Mapping[str, object]", value)
        return {"skuTypes" if key == "gpuTypes" else key: item for key, item in inner.items()}
    return cast("object", value)


class HivedCluster(Lenient):
    """The hardware."""

    types: Annotated[dict[str, HivedCellType], BeforeValidator(_nothing)] = Field(
        default={}, alias="cellTypes"
    )
    cells: Annotated[list[HivedCell], BeforeValidator(_no_items)] = Field(
        default=[], alias="physicalCells"
    )
    skus: Annotated[dict[str, HivedSku], BeforeValidator(_nothing)] = Field(
        default={}, alias="skuTypes"
    )


class HivedShare(Lenient):
    """So many cells; the type is written with those above it: `RACK.NODE`."""

    type: Word = Field(alias="cellType")
    count: Number = Field(alias="cellNumber")


class HivedPin(Lenient):
    """A pinned cell by its id."""

    id: Word = Field(alias="pinnedCellId")


class HivedTenant(Lenient):
    """A virtual cluster."""

    cells: Annotated[list[HivedShare], BeforeValidator(_no_items)] = Field(
        default=[], alias="virtualCells"
    )
    pins: Annotated[list[HivedPin], BeforeValidator(_no_items)] = Field(
        default=[], alias="pinnedCells"
    )


class HivedConfig(Lenient):
    """The whole file."""

    cluster: Annotated[HivedCluster, BeforeValidator(_renamed)] = Field(alias="physicalCluster")
    tenants: Annotated[
        dict[str, Annotated[HivedTenant, BeforeValidator(_nothing)]], BeforeValidator(_nothing)
    ] = Field(alias="virtualClusters")
    api_server: Text = Field("", alias="kubeApiServerAddress")
    kube_config: Text = Field("", alias="kubeConfigFilePath")
    web_server: Text = Field("", alias="webServerAddress")
    bind_threshold: Text = Field("", alias="forcePodBindThreshold")
    block_ms: Text = Field("", alias="waitingPodSchedulingBlockMilliSec")


UNUSED = {
    "kubeApiServerAddress": "Allotment asks no Kubernetes API server for its machines",
    "kubeConfigFilePath": "Allotment asks no Kubernetes API server for its machines",
    "webServerAddress": "`allot up --port` says where the API listens",
    "forcePodBindThreshold": "a decision is carried out without another scheduler",
}
"""Known keys of the top that have no effect here, and why."""
