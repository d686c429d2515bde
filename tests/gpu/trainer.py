"""A small training job on one GPU, the same to the last bit each time; needs PyTorch.

    trainer.py OUT STEPS MEBIBYTES PAUSE_MS [offload]

Holds so much device memory besides, and pauses after each step as if it waited for data. Writes
what each step took and its loss to OUT, a line a step, and `end DIGEST` of losses and memory.
With `offload` it gives its memory back whenever it is suspended.
"""

import hashlib
import os
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # pyright: ignore[reportMissingImports]

from allotment import progress

out, steps, mebibytes, pause_s = sys.argv[1], *map(int, sys.argv[2:4]), int(sys.argv[4]) / 1000
torch.use_deterministic_algorithms(True)
torch.manual_seed(7)
held = torch.arange(mebibytes << 18, dtype=torch.int32, device="cuda")
model = torch.nn.Sequential(
    torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if "offload" in sys.argv[5:]:
    from allotment.loops.pytorch import offload

    offload(model, optimizer, held)
digest = hashlib.sha256()
with open(out, "a", buffering=1) as file:  # noqa: PTH123 - a program of its own
    for step in range(1, steps + 1):
        began = time.monotonic()
        batch = torch.randn(1024, 2048, device="cuda")
        loss = (model(batch) - batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told = loss.item().hex()
        del batch, loss
        digest.update(told.encode())
        time.sleep(pause_s)
        progress(step, steps)
        file.write(f"{step} {time.monotonic() - began:.6f} {told}\n")
    digest.update(str(int(held.sum(dtype=torch.int64))).encode())
    file.write(f"end {digest.hexdigest()}\n")
