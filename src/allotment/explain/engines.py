"""Which engines are able to run a job, and what keeps the others from it."""

from collections.abc import Sequence

from allotment.core.cluster import Cluster
from allotment.core.request import Request
from allotment.explain.cell_words import listed
from allotment.model.engines import ANY_ENGINE, Ability

ASKED = {
    Ability.SUSPENDS: "suspend it so that others get its GPUs",
    Ability.DIVIDES: "give it a part of a GPU",
    Ability.IMAGES: "run it in an image",
    Ability.PMI: "start its tasks as the ranks of a program with MPI",
    Ability.DATASETS: "mount versions of datasets",
    Ability.FOLDERS: "mount registered folders by their names",
    Ability.VERSIONS: "keep what it leaves as versions of a dataset",
    Ability.ENVIRONMENTS: "give it an environment of packages",
    Ability.MPIRUN: "let mpirun start ranks in its other tasks",
}
"""What a job asks for, in words."""


def able(cluster: Cluster, requests: Sequence[Request]) -> tuple[str, ...]:
    """Return the engines that could run the tasks of a gang: all, where it may be spread."""
    named = requests[0].engine
    fits = any if named == ANY_ENGINE else all
    return tuple(
        name
        for name, lacks in cluster.ledger.engines.items()
        if named in ("", ANY_ENGINE, name) and fits(lacks.isdisjoint(r.asks) for r in requests)
    )


def unable(cluster: Cluster, requests: Sequence[Request]) -> str:
    """Return what no engine can do that a gang asks for; '' where one can do all of it."""
    if able(cluster, requests):
        return ""
    named = requests[0].engine
    if named not in ("", ANY_ENGINE) and named not in cluster.ledger.engines:
        return f"There is no engine {named}."
    words = " and ".join(ASKED[ability] for ability in missing(cluster, requests))
    who = f"Engine {named} cannot" if named not in ("", ANY_ENGINE) else "No engine here can"
    return f"{who} {words}."


def missing(cluster: Cluster, requests: Sequence[Request]) -> tuple[Ability, ...]:
    """Return what a gang asks for that none of its engines can do; all that it asks for, where
    each can do some of it."""
    asks = dict.fromkeys(ability for request in requests for ability in request.asks)
    engines, named = cluster.ledger.engines, requests[0].engine
    lacks = [each for name, each in engines.items() if named in ("", ANY_ENGINE, name)]
    return tuple(ability for ability in asks if all(ability in each for each in lacks)) or (
        *asks,
    )


def bound(cluster: Cluster, requests: Sequence[Request]) -> str:
    """Return to which engines a gang is bound, as a sentence; '' where it is to none."""
    names, first = able(cluster, requests), requests[0]
    if len(names) < len(cluster.ledger.engines):
        return f" It can run on {listed(names)} only." if names else ""
    is_one = len(requests) == 1 == first.count
    if len(names) < 2 or is_one or first.engine:
        return ""
    return f" All its tasks must be on one engine: {' or '.join(names)}."
