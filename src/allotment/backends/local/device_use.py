"""What of this machine's real devices is in use now, as NVML says."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from allotment.backends.local.device_watch import Known, nvml
from allotment.model.ids import NodeId
from allotment.service.ports import DeviceUse


def device_uses_of(known: Known) -> Mapping[NodeId, list[DeviceUse]]:
    """Return the use of each device that answers, by node. Blocks: use a thread."""
    found: defaultdict[NodeId, list[DeviceUse]] = defaultdict(list)
    if not known:
        return found
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()  # Counted by the library: it may be open elsewhere.
        try:
            for uuid, (node, index) in known.items():
                with suppress(nvml.NVMLError):
                    found[node].append(_use(uuid, index))
        finally:
            nvml.nvmlShutdown()
    return found


def _use(uuid: str, index: int) -> DeviceUse:
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return DeviceUse(index, int(rates.gpu) * 10, int(memory.used))
