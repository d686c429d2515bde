# pyright: basic, reportMissingImports=false
"""Progress of Keras 3: `model.fit(…, callbacks=[KerasProgress()])`."""

from typing import Any

import keras

from allotment.job import progress

Logs = dict[str, Any] | None


class KerasProgress(keras.callbacks.Callback):
    """Reports each batch with its metrics, and each epoch with those of its validation."""

    def __init__(self, *, offload: bool = False) -> None:
        """With `offload`, the model's device memory is given back while the job is paused: on
        JAX alone. Raises ValueError on another backend."""
        super().__init__()
        if offload and keras.backend.backend() != "jax":
            raise ValueError(
                "Keras gives device memory back on JAX alone: set KERAS_BACKEND=jax in `env`, "
                "or take `offload` out. The job is then frozen with its memory, which the "
                "driver may take with `checkpoint: {driver: true}`"
            )
        self._offloads = offload
        self._step = 0
        self._total: int | None = None

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002 - Keras calls it so
        """Find out how many batches there are, where Keras knows."""
        if self._offloads:
            from allotment.loops.jax import offload  # noqa: PLC0415 - of this backend

            self._offloads = False
            offload(self.model)
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        self._step = 0
        self._total = steps * epochs if steps and epochs else None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002 - as above
        """Count from the epoch that training continues at."""
        self._step = max(self._step, epoch * (self.params.get("steps") or 0))

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002 - as above
        """Report a batch."""
        self._step += 1
        progress(self._step, self._total, **(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002 - as above
        """Report an epoch."""
        progress(self._step, self._total, **(logs or {}))
