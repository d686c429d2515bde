"""How data ask the service to carry out a command, which the log then has."""

from collections.abc import Awaitable, Callable

from allotment.model.commands import AnyCommand
from allotment.model.ids import Actor

Wish = Callable[[AnyCommand, Actor], Awaitable[object]]
"""Carries out a command of somebody's. Raises Rejected."""
