"""A remote engine: Cortex 3 and 4 over HTTP, see core/docs/responder-process.md#remote-cortex-engines."""

from core.engines.cortex.engine import CortexEngine, PollTiming
