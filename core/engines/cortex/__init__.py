"""A remote engine: Cortex 3 and 4 over HTTP (`responder-process.md 4`)."""

from core.engines.cortex.backoff import PollInterval
from core.engines.cortex.engine import CortexEngine

__all__ = ["CortexEngine", "PollInterval"]
