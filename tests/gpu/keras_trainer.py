"""A small Keras model on JAX on one GPU, which gives its memory back when it is paused.

    keras_trainer.py OUT STEPS MEBIBYTES PAUSE_MS

Its weights and their momentum take so much device memory. Writes what each step took and its
loss to OUT, a line a step, and `end DIGEST` of the losses. Needs Keras and JAX.
"""

import hashlib
import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"

import keras  # pyright: ignore[reportMissingImports]
import numpy as np

from allotment.loops.keras import KerasProgress

out, steps, mebibytes, pause_s = sys.argv[1], *map(int, sys.argv[2:4]), int(sys.argv[4]) / 1000
keras.utils.set_random_seed(7)
width = (mebibytes << 20) // (4 * 2 * 2 * 1024)  # floats, twice with momentum, two layers
model = keras.Sequential([
    keras.Input((1024,)), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(1024)
])  # fmt: skip
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
batch = np.random.default_rng(7).normal(size=(64, 1024)).astype("float32")
digest = hashlib.sha256()
with open(out, "a", buffering=1) as file:  # noqa: PTH123 - a program of its own

    class Lines(keras.callbacks.Callback):
        """Notes each step."""

        began = time.monotonic()

        def on_train_batch_end(self, batch, logs=None):  # noqa: ANN001, ANN201 - Keras calls it so
            """Write the line of a step."""
            told = float((logs or {})["loss"]).hex()
            digest.update(told.encode())
            time.sleep(pause_s)
            file.write(f"{batch + 1} {time.monotonic() - self.began:.6f} {told}\n")
            self.began = time.monotonic()

    rows = np.tile(batch, (10, 1))
    model.fit(
        rows, rows, 64, steps // 10, shuffle=False, verbose=0,
        callbacks=[KerasProgress(offload=True), Lines()],
    )  # fmt: skip
    file.write(f"end {digest.hexdigest()}\n")
