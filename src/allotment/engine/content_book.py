"""The book of content: what jobs bring that are not over, and which nodes have it already."""

from collections.abc import Iterator

from allotment.model.content import Content, Held


class ContentBook:
    """Nodes by content. What no job brings any more is forgotten."""

    def __init__(self) -> None:
        self.held: dict[Content, Held] = {}
        """Of what some node has."""
        self.came = 0
        """Grows whenever a job brings what none brought."""
        self._asking: dict[Content, int] = {}
        """How many jobs bring each."""
        self._since: dict[Content, int] = {}
        """What `came` was when the first of them did."""

    def __iter__(self) -> Iterator[tuple[Content, int]]:
        """Yield what jobs bring, each with what `came` was then."""
        return iter(self._since.items())

    def is_asked(self, content: Content) -> bool:
        return content in self._asking

    def count(self, content: Content, change: int) -> None:
        """Count a job with a content that comes, 1, or is over, -1."""
        before = self._asking.get(content, 0)
        if not before + change:
            del self._asking[content], self._since[content]
            self.held.pop(content, None)
            return
        self._asking[content] = before + change
        if not before:
            self.came += 1
            self._since[content] = self.came

    def note(self, content: Content, held: Held) -> None:
        """Note which nodes have a content from now on."""
        if held.nodes:
            self.held[content] = held
        else:
            self.held.pop(content, None)
