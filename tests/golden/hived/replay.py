"""Every decision of a scenario put to our cells: what came of each."""

from collections.abc import Iterable, Iterator

import msgspec

from tests.golden.hived.adapter import UnderTest
from tests.golden.hived.compare import Outcome, Verdict, compare
from tests.golden.hived.decisions import Again, Decision, Open, Place, Recover
from tests.golden.hived.words import Answer, Placed, Refused, Waits

UNSOUND = {"ed_23_infeasible_but_equal_sum", "ut_08_invalid_initial_assignment"}
"""Configurations that want more cells than there are. HiveD refuses a third one, wrongly."""


class Result(msgspec.Struct, frozen=True):
    decision: Decision
    kind: str
    """What HiveD did, in a word: start, bind, preempt, wait, refuse, again, take up."""
    verdict: Verdict
    ours: Answer | frozenset[str] | None = None


def replay(cells: UnderTest, decisions: Iterable[Decision]) -> Iterator[Result]:
    """Load before each decision what HiveD knew, ask, judge, carry out, and audit."""
    for decision in decisions:
        match decision:
            case Open():
                yield _open(cells, decision)
            case Place():
                yield _place(cells, decision)
            case Again():
                yield Result(decision, "again", _audited(cells.load(decision.book)))
            case Recover():
                yield _recover(cells, decision)


def _open(cells: UnderTest, decision: Open) -> Result:
    refused = cells.open(decision.cluster)
    if bool(refused) == (decision.scenario in UNSOUND):
        return Result(decision, "start", Verdict(Outcome.SAME, refused))
    outcome = Outcome.REFUSED if refused else Outcome.NOT_REFUSED
    return Result(decision, "start", Verdict(outcome, refused))


def _place(cells: UnderTest, decision: Place) -> Result:
    kind = _kind(decision.answer)
    if decision.malformed:
        return Result(decision, f"{kind}: spec", Verdict(Outcome.SAME, decision.malformed))
    flaws = cells.load(decision.book)
    ours = cells.place(decision.ask)
    verdict = compare(decision, ours)
    if verdict.outcome is not Outcome.INVALID:
        flaws += cells.settle(decision.ask, ours)
    if flaws:
        verdict = _audited(flaws)
    return Result(decision, kind, verdict, ours)


def _kind(answer: Answer) -> str:
    match answer:
        case Placed():
            return "preempt" if answer.victims else "bind"
        case Waits():
            return "wait"
        case Refused():
            return "refuse"
        case _:
            return "crash"


def _recover(cells: UnderTest, decision: Recover) -> Result:
    kept = cells.recover(decision.reported, decision.bad)
    lost = sorted(decision.kept - kept)
    outcome = Outcome.SAME if kept == decision.kept else Outcome.BETTER
    verdict = Verdict(Outcome.WORSE, f"lost {lost}") if lost else Verdict(outcome)
    return Result(decision, "take up", verdict, kept)


def _audited(flaws: list[str]) -> Verdict:
    return Verdict(Outcome.INVALID if flaws else Outcome.SAME, "; ".join(flaws))
