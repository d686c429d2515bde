# pyright: basic, reportMissingImports=false
"""Device memory that Keras models on JAX give back: `KerasProgress(offload=True)`.

The values of a model's variables go to the host, and their arrays are deleted. JAX keeps for
itself what is freed, unless it asks the driver for each array:
`XLA_PYTHON_CLIENT_ALLOCATOR=platform` in the job's `env`.
"""

import os
from typing import Any

import jax
import numpy

from allotment.job import on_pause, on_resume

HOST = frozenset({"cpu"})
ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"


class OffloadedModel:
    """The variables of a compiled Keras model, on their devices or on the host."""

    def __init__(self, model: Any, stays: frozenset[str] = HOST) -> None:  # noqa: ANN401 - of Keras
        """What lies on the kinds of devices that are named in `stays` is left there."""
        self._model, self._stays = model, stays
        self._away: list[tuple[Any, Any]] = []
        """Variables whose values are on the host, and how those lay on devices."""

    def out(self) -> None:
        """Move everything to the host, and give the device memory back."""
        # In an epoch the values are with the trainer; it takes them from the variables again.
        self._model.jax_state_sync()
        for variable in self._variables():
            value = variable.value
            if not isinstance(value, jax.Array):
                continue  # It is away already.
            if {device.platform for device in value.devices()} <= self._stays:
                continue
            variable._value = numpy.array(value)
            self._away.append((variable, value.sharding))
            value.delete()

    def back(self) -> None:
        """Move everything that is on the host to its device again."""
        while self._away:
            variable, sharding = self._away[-1]
            variable._value = jax.device_put(variable._value, sharding)
            self._away.pop()

    def _variables(self) -> list[Any]:
        model = self._model
        return [
            *model.trainable_variables,
            *model.non_trainable_variables,
            *model.optimizer.variables,
            *model.metrics_variables,
        ]


def offload(model: Any) -> OffloadedModel:  # noqa: ANN401 - of Keras
    """Free what a model holds on devices whenever the job is paused, and take it again.

    Raises ValueError where JAX would keep the memory all the same.
    """
    platform = os.environ.get(ALLOCATOR) == "platform"
    if not platform and any(device.platform not in HOST for device in jax.devices()):
        raise ValueError(f"JAX keeps memory that is freed; set {ALLOCATOR}=platform in `env`")
    made = OffloadedModel(model)
    on_pause(made.out)
    on_resume(made.back)
    return made
