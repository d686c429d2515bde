"""What a job waits for: each of some jobs, or one out of several."""

from collections.abc import Sequence

from allotment.model.spec import Dependency


def choices(needs: Sequence[Dependency]) -> list[tuple[Dependency, ...]]:
    """Return what must be met: of each group one is enough, most have no other."""
    if not needs:
        return []
    groups: dict[int, list[Dependency]] = {}
    found: list[tuple[Dependency, ...]] = []
    for need in needs:
        if need.any_of:
            groups.setdefault(need.any_of, []).append(need)
        else:
            found.append((need,))
    return [*found, *map(tuple, groups.values())]


def alternatives(needs: Sequence[Dependency], need: Dependency) -> list[Dependency]:
    """Return the group that a dependency is of; by itself where it is of none."""
    if not need.any_of:
        return [need]
    return [other for other in needs if other.any_of == need.any_of]
