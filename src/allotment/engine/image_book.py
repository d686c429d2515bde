"""The book of images: which ones jobs ask for that are not over, and which nodes have these."""

from collections.abc import Iterator

from allotment.model.node_runs import NodeRuns


class ImageBook:
    """Nodes by image. What no job asks for any more is forgotten."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRuns] = {}
        """Of those images that some node has."""
        self.came = 0
        """Grows whenever a job asks for an image that none asked for."""
        self._asking: dict[str, int] = {}
        """How many jobs ask for each image."""
        self._since: dict[str, int] = {}
        """What `came` was when the first of them did."""

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield the images that jobs ask for, each with what `came` was then."""
        return iter(self._since.items())

    def is_asked(self, image: str) -> bool:
        return image in self._asking

    def count(self, image: str, change: int) -> None:
        """Count a job with an image that comes, 1, or is over, -1."""
        before = self._asking.get(image, 0)
        if not before + change:
            del self._asking[image], self._since[image]
            self.nodes.pop(image, None)
            return
        self._asking[image] = before + change
        if not before:
            self.came += 1
            self._since[image] = self.came

    def note(self, image: str, nodes: NodeRuns) -> None:
        """Note which nodes have an image from now on."""
        if nodes:
            self.nodes[image] = nodes
        else:
            self.nodes.pop(image, None)
