"""The cluster of one engine, and how it is asked."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from allotment.backends.contact import Contact
from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.registered import Registered
from allotment.backends.kubernetes.spaces import Spaces
from allotment.backends.kubernetes.visible import IsVisible, nowhere
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup


class Site(NamedTuple):
    """What most parts of the backend need of it."""

    setup: EngineSetup
    prefix: str
    """What the names of our pods begin with."""
    client: Client
    contact: Contact
    cluster: Cluster
    nodes: Callable[[], Sequence[Node]]
    """Those in force."""
    spaces: Spaces
    registered: Registered
    is_visible: IsVisible = nowhere
    """Of which nodes pods are told their devices, where these have no names."""
