# pyright: basic, reportMissingImports=false
"""Progress of Hugging Face's Trainer: `Trainer(…, callbacks=[TrainerProgress()])`."""

import os
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from allotment.job import progress
from allotment.loops.pytorch import offload as give_back

COMPARED = os.environ.get("ALLOT_SWEEP_METRIC", "")
"""What a trial of a sweep is compared by: an old value of it is not told again."""


class TrainerProgress(TrainerCallback):
    """Reports each step, and what the Trainer logs: the loss, evaluations."""

    def __init__(self, *, offload: bool = False) -> None:
        """With `offload`, the device memory of the model and its optimizer is given back while
        the job is paused: not with CUDA graphs, DeepSpeed or FSDP."""
        self._offloads = offload
        self._shown: dict[str, Any] = {}

    def on_step_begin(self, *_: Any, **given: Any) -> None:  # noqa: ANN401 - as the Trainer gives it
        """Learn what holds device memory, at the first step."""
        if self._offloads:
            self._offloads = False
            optimizer = given.get("optimizer")
            give_back(given.get("model"), getattr(optimizer, "optimizer", optimizer))

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the Trainer calls it so
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - as above
        **_: Any,  # noqa: ANN401 - not looked at
    ) -> None:
        """Report a step, with the newest that was logged."""
        progress(state.global_step, state.max_steps or None, **self._shown)

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - as above
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - as above
        logs: dict[str, Any] | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> None:
        """Report what is logged."""
        logs = logs or {}
        self._shown |= {name: value for name, value in logs.items() if name != COMPARED}
        progress(state.global_step, state.max_steps or None, **self._shown, **_of(logs))


def _of(logs: dict[str, Any]) -> dict[str, Any]:
    return {COMPARED: logs[COMPARED]} if COMPARED in logs else {}
