"""A remote engine: Cortex 3 and 4 over HTTP, see core/docs/responder-process.md#remote-cortex-engines."""

from core.engines.cortex.backoff import PollTiming
from core.engines.cortex.engine import CortexEngine

__all__ = ["CortexEngine", "PollTiming"]
