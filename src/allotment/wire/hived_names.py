"""HiveD's names into ours: the same, as far as they can be names here."""

from allotment.wire.problems import Finding
from allotment.wire.tree import Place
from allotment.wire.words import NAME

LONGEST = 100


class Names:
    """Our name for each of HiveD's, by what it names; changes are told as warnings."""

    def __init__(self, warnings: list[Finding]) -> None:
        self._warnings = warnings
        self._known: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()

    def of(self, what: str, name: str, place: Place, wish: str = "") -> str:
        """Return our name for a node, type, root, pin or tenant, made of `wish` if given."""
        if (what, name) in self._known:
            return self._known[what, name]
        given = wish or name
        word = "".join(c if NAME.fullmatch("a" + c) else "-" for c in given)
        word = word.lstrip("._-")[:LONGEST] or what
        ours, number = word, 1
        while (what, ours) in self._taken:
            number += 1
            ours = f"{word}-{number}"
        self._known[what, name] = ours
        self._taken.add((what, ours))
        if ours != given:
            self._warnings.append((place, f"the {what} {given} is called {ours} here", ""))
        return ours
