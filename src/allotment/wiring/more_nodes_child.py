"""The child process that works out what more nodes would help: question on stdin, answer on
stdout."""

from allotment.model.pools import MoreQuestion
from allotment.sim.more_nodes import more_nodes
from allotment.wiring.forecast_child import answered, patience
from allotment.wiring.policies import policies


def main() -> None:
    """Answer the question on stdin; the answer goes to stdout."""
    answered(MoreQuestion, lambda q: more_nodes(q, policies(), patience(q.patience_ms)))


if __name__ == "__main__":
    main()
