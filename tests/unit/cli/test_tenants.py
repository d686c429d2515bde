"""`allot tenants` where shares are counted: what its one part does not tell."""

from msgspec.structs import replace

from allotment.cli.cluster import beside
from allotment.model.quantity import GIB, NOTHING, Resources
from allotment.service.views import TenantView

NOBODY = TenantView("vision", NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, 0, 0, (), "")
SHARE = Resources(gpu_milli=4000, cpu_milli=32_000, gpu_memory=160 * GIB)


def test_a_part_that_is_borrowed_beside_the_devices_is_told() -> None:
    job = Resources(gpu_milli=3000, cpu_milli=1000, gpu_memory=240 * GIB)
    borrows = replace(NOBODY, guaranteed=SHARE, borrowed=job)
    assert beside([borrows], in_gpus=True) == ["vision borrows 80 GiB of GPU memory."]
    own = replace(borrows, own=Resources(gpu_memory=100 * GIB))
    assert beside([own], in_gpus=True) == ["vision borrows 180 GiB of GPU memory."]


def test_where_devices_tell_nothing_is_added() -> None:
    job = Resources(gpu_milli=5000, cpu_milli=1000, gpu_memory=240 * GIB)
    assert not beside([replace(NOBODY, guaranteed=SHARE, borrowed=job)], in_gpus=True)
    assert not beside([replace(NOBODY, guaranteed=SHARE, own=SHARE)], in_gpus=True)


def test_what_a_tenant_is_guaranteed_without_any_device_is_told() -> None:
    share = Resources(cpu_milli=16_000, disk=100 * GIB)
    tenant = replace(NOBODY, guaranteed=share)
    assert beside([tenant], in_gpus=True) == ["vision is guaranteed 16 CPUs, 100 GiB of disk."]
    assert not beside([tenant], in_gpus=False)
