"""Protected targets: what no responder may be run on (core/docs/guards.md#protected-targets)."""

from core.protection.spellings import canonical
from core.protection.targets import FILE, ProtectedTargets, entry_problem

__all__ = ["FILE", "ProtectedTargets", "canonical", "entry_problem"]
