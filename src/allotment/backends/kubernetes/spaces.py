"""In which namespace the pods of a tenant are.

Those that were ever used are kept on disk: pods there are ours if they have our label. In any
other namespace, whoever makes pods could write that on them.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from allotment.model.errors import BackendError
from allotment.rights.writing import write_whole

TENANT = "{tenant}"
"""Stands for the tenant in a pattern."""
ALL = ""
"""In place of a tenant: a pattern for all that are not named."""
HOME = ""
"""In place of a namespace: that of the engine."""


def space_of(tenant: str, named: Mapping[str, str]) -> str:
    """Return the namespace of a tenant's pods, HOME where none is named for it."""
    if not tenant:
        return HOME
    return named.get(tenant) or named.get(ALL, HOME).replace(TENANT, tenant)


class Spaces:
    """Where pods are to be, and where those of ours may be. `home` is the namespace of the
    engine, `file` where the others that were used are kept."""

    def __init__(self, home: str, named: Mapping[str, str], file: Path) -> None:
        """Raise OSError where the file cannot be read."""
        self.home, self._named, self._file = home, named, file
        self._used = set(file.read_text().split()) if file.exists() else set[str]()

    def is_own(self, namespace: str) -> bool:
        """Whether pods of ours may be in a namespace."""
        return namespace == self.home or namespace in self._used

    def enter(self, tenant: str) -> str:
        """Return the namespace of a tenant's pods, HOME where it is that of the engine. It is
        noted before there is a pod. Raises BackendError where it cannot be."""
        found = space_of(tenant, self._named)
        if found == self.home:
            return HOME
        if found and found not in self._used:
            self._keep({*self._used, found})
        return found

    def leave(
        self, placed: Collection[str], in_use: Callable[[], Collection[str]]
    ) -> Collection[str]:
        """Take no pods any more for ours in namespaces whose pods of others are placed now,
        unless tasks of ours are there yet. Return those: nothing of others is placed there.
        Raises BackendError."""
        both = self._used & set(placed)
        if not both:
            return ()
        stay = both & set(in_use())
        if both - stay:
            self._keep(self._used - both | stay)
        return sorted(stay)

    def _keep(self, used: set[str]) -> None:
        try:
            write_whole(self._file, "".join(f"{each}\n" for each in sorted(used)).encode())
        except OSError as error:
            raise BackendError(f"{self._file} cannot be written: {error}") from error
        self._used = used
