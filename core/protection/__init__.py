"""Protected targets: what no responder may be run on (core/docs/guards.md#protected-targets)."""

from core.protection.spellings import canonical
from core.protection.targets import FILE, ProtectedList, ProtectedTargets, Unread, entry_problem

__all__ = ["FILE", "ProtectedList", "ProtectedTargets", "Unread", "canonical", "entry_problem"]
