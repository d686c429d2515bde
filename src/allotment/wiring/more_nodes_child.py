"""The child process that works out what more nodes would help: question on stdin, answer on
stdout."""

import gc
import os
import signal
import sys

import msgspec

from allotment.backends.local.runner.libc import die_with_parent
from allotment.model.pools import MoreQuestion
from allotment.sim.more_nodes import more_nodes
from allotment.wiring.forecast_child import NICENESS, patience
from allotment.wiring.policies import policies


def main() -> None:
    """Answer the question on stdin; the answer goes to stdout."""
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    gc.disable()  # what is made lives as long as we do, or goes by itself
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=MoreQuestion)
    found = more_nodes(question, policies(), patience(question.patience_ms))
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main()
