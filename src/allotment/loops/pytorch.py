# pyright: basic, reportMissingImports=false
"""Device memory of PyTorch that a paused job gives back: `offload(model, optimizer)`.

The bytes of parameters, buffers, gradients and the state of optimizers go to pinned memory of
the host, and the storages on the device shrink to nothing. Tensors keep their identity, and
what shares memory shares it again afterwards: views, tied weights, the buckets of DDP. They may
come to lie elsewhere on the device, which captured CUDA graphs do not bear.
"""

import gc
from collections.abc import Iterator
from typing import Any

import torch

from allotment.job import on_pause, on_resume

HOST = frozenset({"cpu", "meta"})


class Offloaded:
    """The tensors of some modules and optimizers, on their devices or on the host."""

    def __init__(self, *holders: Any, stays: frozenset[str] = HOST) -> None:  # noqa: ANN401 - modules, optimizers, tensors
        """What lies on the kinds of devices that are named in `stays` is left there."""
        self._holders, self._stays = holders, stays
        self._away: list[tuple[Any, torch.device, torch.Tensor]] = []
        """Storages that are empty now, their devices, and their bytes on the host."""
        self._arena: dict[int, torch.Tensor] = {}
        """Memory of the host, kept: to pin it is slow."""

    def out(self) -> None:
        """Move everything to the host, and give the device memory back."""
        _wait()
        moved = []
        for number, tensor in enumerate(_one_a_storage(self._holders, self._stays)):
            storage = tensor.untyped_storage()
            host = self._host(number, storage.nbytes())
            host.copy_(_bytes_of(storage, tensor.device), non_blocking=True)
            moved.append((storage, tensor.device, host))
        _wait()
        for entry in moved:
            self._away.append(entry)
            entry[0].resize_(0)
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def back(self) -> None:
        """Move everything that is on the host to its device again."""
        while self._away:
            storage, device, host = self._away[-1]
            storage.resize_(host.numel())
            _bytes_of(storage, device).copy_(host, non_blocking=True)
            self._away.pop()
        _wait()

    def _host(self, number: int, size: int) -> torch.Tensor:
        found = self._arena.get(number)
        if found is None or found.numel() != size:
            pinned = torch.cuda.is_available()
            found = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            self._arena[number] = found
        return found


def offload(*holders: Any) -> Offloaded:  # noqa: ANN401 - modules, optimizers, tensors
    """Free what these hold on devices whenever the job is paused, and take it again.

    Modules, optimizers, tensors, and lists, tuples and dictionaries of them. Name whatever
    holds much; what is not named stays, as do the context of CUDA and the buffers of libraries.
    """
    made = Offloaded(*holders)
    on_pause(made.out)
    on_resume(made.back)
    return made


def _one_a_storage(holders: Any, stays: frozenset[str]) -> Iterator[torch.Tensor]:  # noqa: ANN401 - as above
    """Return one tensor of each storage that can be emptied, in one order."""
    seen: set[int] = set()
    for tensor in _tensors(holders):
        if type(tensor.data) is not torch.Tensor or tensor.layout is not torch.strided:
            continue  # It only stands for others.
        if tensor.device.type in stays:
            continue
        storage = tensor.untyped_storage()
        if storage._cdata in seen or not storage.nbytes() or not storage.resizable():
            continue
        seen.add(storage._cdata)
        yield tensor


def _tensors(holder: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - as above
    if isinstance(holder, torch.Tensor):
        yield holder
        if holder.is_leaf and holder.grad is not None:
            yield holder.grad
    elif isinstance(holder, torch.nn.Module):
        for tensor in (*holder.parameters(), *holder.buffers()):
            yield from _tensors(tensor)
    elif isinstance(holder, torch.optim.Optimizer):
        yield from _tensors([holder.param_groups, holder.state])
    elif isinstance(holder, dict):
        yield from _tensors(list(holder.values()))
    elif isinstance(holder, list | tuple):
        for each in holder:
            yield from _tensors(each)


def _bytes_of(storage: Any, device: torch.device) -> torch.Tensor:  # noqa: ANN401 - untyped
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def _wait() -> None:
    """Wait for what devices still do: they run behind the program."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
