"""A node in Slurm's JSON, which its commands and its REST API have in common. Pure."""

import msgspec

from allotment.model.errors import BackendError, EngineAway


class SlurmNode(msgspec.Struct, frozen=True):
    """A node as Slurm shows it in JSON; what else it says is passed over."""

    name: str
    cpus: int
    real_memory: int
    """MiB."""
    address: str = ""
    state: str | tuple[str, ...] = ""
    """One word, with `state_flags` beside it; from 23.02 on all words together."""
    state_flags: tuple[str, ...] = ()
    gres: str = ""
    reason: str = ""
    architecture: str = ""
    features: str | tuple[str, ...] | None = None
    """Words that its site says of it; with commas between before 23.02."""
    partitions: tuple[str, ...] = ()
    alloc_cpus: int = 0
    alloc_memory: int = 0
    """MiB."""
    gres_used: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Return how it is, in Slurm's words in capital letters."""
        own = (self.state,) if isinstance(self.state, str) else self.state
        return tuple(word.upper() for word in (*own, *self.state_flags))

    @property
    def tags(self) -> tuple[str, ...]:
        """Return its features, in order."""
        said = self.features or ()
        words = said.split(",") if isinstance(said, str) else said
        return tuple(sorted({word.strip() for word in words} - {""}))


class _Nodes(msgspec.Struct, frozen=True):
    nodes: tuple[SlurmNode, ...] = ()
    errors: tuple[dict[str, object], ...] = ()


def nodes_from(said: bytes | str, what: str) -> tuple[SlurmNode, ...]:
    """Read all nodes in what `what` said. Raises BackendError."""
    try:
        found = msgspec.json.decode(said, type=_Nodes)
    except msgspec.DecodeError as error:
        raise BackendError(f"what {what} says is not understood: {error}") from error
    if found.errors and not found.nodes:  # It exits with 0 where no controller answers.
        why = found.errors[0].get("error", "no reason given")
        raise EngineAway(f"{what}: {why}")
    return found.nodes
