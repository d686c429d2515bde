"""Callbacks of training frameworks, each in a real loop of its framework.

The frameworks are those of the virtual environment that `scripts/loops` makes, or else of this.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import allotment

SRC = Path(allotment.__file__).parents[1]
FOLDER = Path(os.environ.get("ALLOT_TEST_LOOPS") or Path.home() / ".cache/allotment-loops")
PYTHON = str(FOLDER / "bin/python") if (FOLDER / "whole").exists() else sys.executable
FIND = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
KERAS = """
import keras, numpy
from allotment.loops.keras import KerasProgress
keras.utils.set_random_seed(1)
x = numpy.random.default_rng(1).normal(size=(64, 4)); y = x.sum(axis=1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, 8, 3, verbose=0, validation_split=0.25, callbacks=[KerasProgress()])
"""
LIGHTNING = """
import torch, lightning.pytorch as lightning
from torch.utils.data import DataLoader, TensorDataset
from allotment.loops.lightning import LightningProgress
lightning.seed_everything(1)
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__(); self.line = torch.nn.Linear(4, 1)
    def _loss(self, batch):
        return torch.nn.functional.mse_loss(self.line(batch[0])[:, 0], batch[0].sum(1))
    def training_step(self, batch, at):
        loss = self._loss(batch); self.log("loss", loss); return loss
    def validation_step(self, batch, at):
        self.log("val_loss", self._loss(batch))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = TensorDataset(torch.randn(48, 4))
trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", callbacks=[LightningProgress()],
    logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Model(), DataLoader(data, 8), DataLoader(data, 8))
"""
HUGGING_FACE = """
import sys, torch
from transformers import Trainer, TrainingArguments
from allotment.loops.huggingface import TrainerProgress
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.line = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        out = self.line(x)[:, 0]
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}
torch.manual_seed(1)
x = torch.randn(48, 4)
data = [{"x": one, "labels": one.sum()} for one in x]
args = TrainingArguments(sys.argv[1], per_device_train_batch_size=8, num_train_epochs=3,
    logging_steps=3, eval_strategy="epoch", save_strategy="no", report_to=[], use_cpu=True,
    disable_tqdm=True)
told = [TrainerProgress()]
Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=told).train()
"""
OFFLOADED = """
import torch
from allotment.loops.pytorch import Offloaded
def losses(pauses):
    torch.manual_seed(0)
    ends = [torch.nn.Linear(8, 8) for _ in range(2)]
    model = torch.nn.Sequential(ends[0], torch.nn.BatchNorm1d(8), ends[1])
    model[2].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    views, found = [flat, flat[3:]], []
    held = Offloaded(model, optimizer, {"views": views}, stays=frozenset())
    for step in range(20):
        x = torch.randn(16, 8)
        loss = ((model(x) - x) ** 2).mean()
        optimizer.zero_grad(set_to_none=False); loss.backward(); optimizer.step()
        found.append(loss.item())
        if pauses and step % 6 == 3:
            own = list(model.parameters())
            tensors = [*own, *(each.grad for each in own), *model.buffers()]
            held.out(); held.out()
            assert not any(tensor.untyped_storage().nbytes() for tensor in tensors)
            held.back(); held.back()
            assert flat[3:].data_ptr() == flat.data_ptr() + 12
    return found
assert losses(False) == losses(True)
"""
KERAS_OFFLOADED = """
import keras, numpy
from allotment.loops.jax import OffloadedModel
from allotment.loops.keras import KerasProgress
class Pauses(keras.callbacks.Callback):
    pauses = 0
    def on_train_batch_end(self, batch, logs=None):
        if batch % 3 == 1:
            held = OffloadedModel(self.model, stays=frozenset())
            held.out(); held.out()
            values = [v.value for v in held._variables()]
            assert values and all(type(value) is numpy.ndarray for value in values)
            assert len(self.model.get_weights()) == 7, "what a save would find"
            held.back(); held.back()
            Pauses.pauses += 1
def trained(*callbacks):
    keras.utils.set_random_seed(1)
    x = numpy.random.default_rng(1).normal(size=(64, 4)); y = x.sum(axis=1)
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2), keras.layers.Dense(1, use_bias=False)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", "mse", metrics=["mae"])
    told = model.fit(x, y, 8, 3, verbose=0, validation_split=0.25, callbacks=callbacks)
    return told.history, [w.tobytes() for w in model.get_weights()]
assert trained(KerasProgress(offload=True)) == trained(Pauses())
assert Pauses.pauses == 6, Pauses.pauses
"""
KERAS_REFUSED = """
from allotment.loops.keras import KerasProgress
KerasProgress()
KerasProgress(offload=True)
"""
LOOPS = [
    ("keras", KERAS, "val_loss", [6, 18]),
    ("keras", KERAS, "loss", [6, 15]),
    ("lightning", LIGHTNING, "val_loss", [6, 18]),
    ("lightning", LIGHTNING, "loss", [6, 15]),
    ("transformers", HUGGING_FACE, "eval_loss", [6, 18]),
    ("transformers", HUGGING_FACE, "loss", [6, 15]),
]


def has(*modules: str) -> bool:
    """Whether that Python has all of these."""
    return subprocess.run([PYTHON, "-c", FIND, *modules], check=False).returncode == 0


@pytest.mark.may_skip("these frameworks are large, and in no lock of ours")
@pytest.mark.parametrize(("framework", "program", "metric", "steps"), LOOPS)
def test_a_real_loop_reports_steps_and_its_metric_at_rungs(
    tmp_path: Path, framework: str, program: str, metric: str, steps: list[int]
) -> None:
    backend = "jax" if framework == "keras" and has("jax") else "torch"
    if not has(framework, backend):
        pytest.skip(f"{framework} with {backend} is not installed here: scripts/loops")
    file = tmp_path / "progress"
    env = {
        **os.environ,
        "PYTHONPATH": str(SRC),
        "ALLOT_PROGRESS_FILE": str(file),
        "ALLOT_SWEEP_METRIC": metric,
        "ALLOT_SWEEP_RUNGS": "6 15",
        "KERAS_BACKEND": backend,
    }
    argv = [PYTHON, "-W", "ignore", "-c", program, str(tmp_path)]
    done = subprocess.run(argv, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(file.read_text().splitlines()[-1])
    assert (told["step"], told["total"]) == (18, 18)
    assert told["metrics"][metric] > 0
    assert told["metrics"]["loss"] > 0
    # Six steps are an epoch, at whose end there is a validation: so it is known at 6 and 18.
    assert [step for step, _ in told["rungs"]] == steps
    assert told["rungs"][1][1] < told["rungs"][0][1]


def ran(program: str, needs: tuple[str, ...], **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program where these are installed."""
    if not has(*needs):
        pytest.skip(f"{' with '.join(needs)} is not installed here: scripts/loops")
    argv = [PYTHON, "-W", "ignore", "-c", program]
    env = {**os.environ, "PYTHONPATH": str(SRC), **env}
    return subprocess.run(argv, env=env, check=False, capture_output=True, text=True)


@pytest.mark.may_skip("PyTorch is large, and in no lock of ours")
def test_what_was_moved_to_the_host_and_back_trains_on_bit_by_bit() -> None:
    done = ran(OFFLOADED, ("torch",))
    assert done.returncode == 0, done.stderr


@pytest.mark.may_skip("Keras and JAX are large, and in no lock of ours")
def test_a_keras_model_on_jax_moves_to_the_host_and_trains_on_bit_by_bit() -> None:
    done = ran(KERAS_OFFLOADED, ("keras", "jax"), KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr


@pytest.mark.may_skip("Keras and JAX are large, and in no lock of ours")
def test_keras_on_another_backend_refuses_to_offload_and_says_what_else_there_is() -> None:
    done = ran(KERAS_REFUSED, ("keras", "jax"), KERAS_BACKEND="numpy")
    assert done.returncode == 1
    assert "line 4, in <module>" in done.stderr
    assert "ValueError: Keras gives device memory back on JAX alone" in done.stderr
    assert "checkpoint: {driver: true}" in done.stderr
