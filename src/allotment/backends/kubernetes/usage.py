"""What a pod asks of its node. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from allotment.backends.kubernetes.objects import Asked, Container, Pod, milli, whole

DEVICES = (
    "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe",
    "habana.ai/gaudi", "huawei.com/Ascend910", "aws.amazon.com/neuron", "google.com/tpu",
)  # fmt: skip
"""Resources that are whole accelerators. A node has those of the first that it offers."""


MAKERS = tuple({f"{name.partition('/')[0]}/": None for name in DEVICES})


def uncounted(pod: Pod) -> str:
    """Return something of a maker of devices that a pod asks for and that is not counted, such
    as a part of a device; '' for none."""
    for each in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        for name in (*(each.resources.limits or {}), *(each.resources.requests or {})):
            if name.startswith(MAKERS) and name not in DEVICES:
                return name
    return ""


class Use(msgspec.Struct, frozen=True, gc=False):
    """What is asked for: thousandths of CPUs, bytes, whole devices."""

    cpu_milli: int = 0
    memory: int = 0
    devices: int = 0

    def plus(self, other: "Use") -> "Use":
        return Use(
            self.cpu_milli + other.cpu_milli,
            self.memory + other.memory,
            self.devices + other.devices,
        )

    def most(self, other: "Use") -> "Use":
        return Use(
            max(self.cpu_milli, other.cpu_milli),
            max(self.memory, other.memory),
            max(self.devices, other.devices),
        )


NOTHING = Use()


def use_of(pod: Pod) -> Use:
    """Return what a pod asks for: its containers together, or the one before them that asks
    for the most. One before them that runs on beside the others counts with all after it."""
    if pod.is_over:
        return NOTHING
    beside, before = NOTHING, NOTHING
    for each in pod.spec.init_containers or ():
        now = beside.plus(_asked(each))
        before = before.most(now)
        beside = now if each.restart_policy == "Always" else beside
    together = total(_asked(each) for each in pod.spec.containers).plus(beside).most(before)
    if (whole_pod := pod.spec.resources) is not None:
        together = together.most(_in(whole_pod))
    return together.plus(_amounts(pod.spec.overhead or {}))


def total(uses: Iterable[Use]) -> Use:
    """Sum up."""
    result = NOTHING
    for use in uses:
        result = result.plus(use)
    return result


def _asked(container: Container) -> Use:
    return _in(container.resources)


def _in(asked: Asked) -> Use:
    return _amounts({**(asked.limits or {}), **(asked.requests or {})})


def _amounts(amounts: Mapping[str, str | int | float]) -> Use:
    return Use(
        milli(amounts.get("cpu", 0)),
        whole(amounts.get("memory", 0)),
        sum(whole(amounts.get(name, 0)) for name in DEVICES),
    )
