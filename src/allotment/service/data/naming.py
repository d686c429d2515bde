"""Which dataset a user means. What it may not use it cannot tell from what is not there."""

from allotment.engine.datasets import no_such_data, no_such_version
from allotment.engine.state import State
from allotment.model.data_use import DataReference, reference_of
from allotment.model.datasets import (
    DataKind,
    Dataset,
    DataVersion,
    may_read,
    may_write,
    owns,
)
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.service.access import is_admin


class DataNames:
    """Finds datasets, for those who may know of them."""

    def __init__(self, state: State) -> None:
        self._state = state

    def readable(self, actor: Actor) -> list[Dataset]:
        """List the datasets that a user may use; all of them to an administrator."""
        found = self._state.datasets
        return [found[key] for key in sorted(found) if self.may_read(found[key], actor)]

    def may_read(self, dataset: Dataset, actor: Actor) -> bool:
        """Whether a user may use a dataset, and know of it."""
        return is_admin(actor) or may_read(dataset, actor, self._state.config.tenants)

    def may_write(self, dataset: Dataset, actor: Actor) -> bool:
        """Whether a user may add to a dataset."""
        return is_admin(actor) or may_write(dataset, actor, self._state.config.tenants)

    def reference(self, text: str) -> DataReference:
        """Read how a dataset is named. Raises Rejected."""
        found = reference_of(text)
        if found is None:
            raise Rejected(
                Code.BAD_REQUEST,
                f"{text[:200]!r} cannot be the name of a dataset.",
                "Write NAME, TENANT/NAME or NAME@VERSION; a name has letters, digits, '.', "
                "'_' and '-'.",
            )
        return found

    def find(self, named: DataReference, actor: Actor, prefer: str = "") -> Dataset:
        """Return the dataset that a user means; of several that of a tenant to `prefer`.

        Raises Rejected: just the same where there is none and where the user may not use it.
        """
        if named.tenant:
            found = self._state.datasets.get((named.tenant, named.name))
            if found is None or not self.may_read(found, actor):
                raise no_such_data(str(named))
            return found
        # By name first: rights cost more to look at, and there may be many datasets.
        all_named = [
            each
            for (_, name), each in self._state.datasets.items()
            if name == named.name and self.may_read(each, actor)
        ]
        all_named.sort(key=lambda each: each.tenant)
        preferred = [each for each in all_named if each.tenant == prefer]
        if len(only := preferred or all_named) == 1:
            return only[0]
        if not all_named:
            raise no_such_data(str(named))
        names = ", ".join(each.full for each in all_named[:5])
        raise Rejected(
            Code.BAD_REQUEST,
            f"There are {len(all_named)} datasets {named.name} that you may use.",
            f"Name one with its tenant: {names}.",
        )

    def find_to_write(self, named: DataReference, actor: Actor, prefer: str = "") -> Dataset:
        """Return a dataset that a user may add to. Raises Rejected."""
        found = self.find(named, actor, prefer)
        if not self.may_write(found, actor):
            raise Rejected(
                Code.FORBIDDEN,
                f"You may read {found.full}, and not add to it; you are {actor.user}.",
                f"Its owner {found.user} can grant it: `allot data grant {found.name} "
                f"user:{actor.user} --write`.",
            )
        return found

    def find_own(self, named: DataReference, actor: Actor) -> Dataset:
        """Return a dataset of which a user is the owner, or an administrator."""
        found = self.find(named, actor)
        if not (owns(found, actor) or is_admin(actor)):
            raise Rejected(
                Code.FORBIDDEN,
                f"{found.full} belongs to {found.user}; you are {actor.user}.",
                "Ask its owner or the administrator.",
            )
        return found

    def version(self, dataset: Dataset, number: int) -> DataVersion | None:
        """Return a version, the newest for 0; None for a folder. Raises Rejected."""
        if dataset.kind is DataKind.FOLDER and not number:
            return None
        found = dataset.version(number)
        if found is None:
            raise no_such_version(dataset, number)
        return found
