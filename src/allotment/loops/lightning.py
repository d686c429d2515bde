# pyright: basic, reportMissingImports=false
"""Progress of PyTorch Lightning 2: `Trainer(callbacks=[LightningProgress()])`."""

import math
import os
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from allotment.job import progress
from allotment.loops.pytorch import offload as give_back

COMPARED = os.environ.get("ALLOT_SWEEP_METRIC", "")
"""What a trial of a sweep is compared by: an old value of it is not told again."""


class LightningProgress(Callback):
    """Reports each step of the optimizer with what the module has logged, and validations."""

    def __init__(self, *, offload: bool = False) -> None:
        """With `offload`, the module and its optimizers give their device memory back while the
        job is paused: not with CUDA graphs, nor where a strategy shards the module."""
        self._offloads = offload
        self._total: int | None = None
        self._told: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find out how many steps there are, where Lightning knows."""
        if self._offloads:
            self._offloads = False
            give_back(pl_module, trainer.optimizers)
        total = trainer.estimated_stepping_batches
        self._total = int(total) if math.isfinite(total) else None

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:  # noqa: ANN401 - not looked at
        """Report a step."""
        self._tell(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 - Lightning calls it so
        """Report a validation, but for the one that tries it out before training."""
        if not trainer.sanity_checking:
            self._tell(trainer)

    def _tell(self, trainer: Trainer) -> None:
        metrics = dict(trainer.callback_metrics)
        if COMPARED in metrics and metrics[COMPARED] is self._told:
            del metrics[COMPARED]  # It is of an earlier step: Lightning keeps what was logged.
        self._told = metrics.get(COMPARED, self._told)
        progress(trainer.global_step, self._total, **metrics)
