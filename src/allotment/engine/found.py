"""The nodes that an engine has found come into force, with the configuration around them."""

from collections.abc import Iterator

from allotment.engine.queueing import check_queues
from allotment.engine.state import State
from allotment.engine.stays import check_stays, with_stable_ids
from allotment.model import events as e
from allotment.model.commands import FindNodes
from allotment.model.dated import in_force
from allotment.model.quantity import Instant


def find_nodes(state: State, command: FindNodes, now: Instant) -> Iterator[e.AnyEvent]:
    """Put a configuration with these nodes in force.

    Raises Rejected where a job is on hardware that would be gone.
    """
    stable = with_stable_ids(state.config, command.config, state.next_node)
    config = in_force(stable, state.wall(now))
    if config == state.config:
        return
    check_queues(state, config)
    check_stays(state, config)
    old = {node.name: node for node in state.config.nodes}
    new = {node.name: node for node in config.nodes}
    yield e.NodesFound(
        config,
        engine=command.engine,
        came=tuple(name for name in new if name not in old),
        changed=tuple(n for n in new if n in old and new[n] != old[n]),
        left=tuple(name for name in old if name not in new),
    )
