"""What the services of actions work with."""

from dataclasses import dataclass

from core.common.clock import Clock
from core.common.database import Database
from core.responders.guards import Guards
from core.responders.registry import Registry


@dataclass(frozen=True)
class Parts:
    """What all of them share."""

    database: Database
    registry: Registry
    guards: Guards
    clock: Clock


class Service:
    """What they have in common."""

    def __init__(self, parts: Parts) -> None:
        self._database = parts.database
        self._registry = parts.registry
        self._guards = parts.guards
        self._clock = parts.clock
