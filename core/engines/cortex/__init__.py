"""A remote engine: Cortex 3 and 4 over HTTP (`responder-process.md 4`)."""

from core.engines.cortex.engine import CortexEngine
from core.engines.cortex.patience import Pace

__all__ = ["CortexEngine", "Pace"]
