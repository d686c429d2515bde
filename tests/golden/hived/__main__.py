"""`python -m tests.golden.hived [PART OF A NAME]`: how our cells do, in tables.

First how many decisions of each kind each scenario has, then each outcome, then every
disagreement with both answers.
"""

import sys
from collections import Counter

from tests.conftest import SHARED
from tests.golden.hived.decisions import Place, decisions
from tests.golden.hived.ours import Ours
from tests.golden.hived.recording import scenarios
from tests.golden.hived.replay import Result, replay
from tests.golden.hived.words import Answer, Placed

KINDS = ("start", "bind", "preempt", "wait", "refuse", "refuse: spec", "again", "take up")


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    results: list[Result] = []
    print(f"{'':48}" + "".join(f"{kind:>13}" for kind in KINDS))
    for scenario in scenarios(SHARED / "hived-vectors" / "scenarios.tar.zst"):
        if part in scenario.name:
            here = list(replay(Ours(), decisions(scenario)))
            count = Counter(result.kind for result in here)
            row = "".join(f"{count[kind] or '':>13}" for kind in KINDS)
            print(f"{scenario.name:48}{row}")
            results += here
    print()
    for (kind, outcome), count in sorted(
        Counter((result.kind, result.verdict.outcome.value) for result in results).items()
    ):
        print(f"{kind:14}{outcome:14}{count:5}")
    for result in results:
        if not result.verdict.outcome.agrees:
            show(result)


def show(result: Result) -> None:
    decision = result.decision
    print(f"\n{decision.scenario} {decision.op}: {result.verdict.outcome.value}")
    print(f"  {result.verdict.detail}")
    if isinstance(decision, Place):
        print(f"  asked {decision.ask}")
        print(f"  HiveD {words(decision.answer)}")
    print(f"  ours  {words(result.ours)}")


def words(answer: Answer | frozenset[str] | None) -> str:
    if not isinstance(answer, Placed):
        return str(answer)
    tasks = ", ".join(f"{t.node}:{list(t.devices)} {t.cell}" for t in answer.tasks)
    return f"{tasks} victims {answer.victims} demoted {answer.demoted}"


if __name__ == "__main__":
    main()
