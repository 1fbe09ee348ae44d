"""Protected targets: what no responder may be run on (core/docs/guards.md#protected-targets)."""

from core.protection.names import addresses_in, targets_in
from core.protection.targets import FILE, ProtectedList, ProtectedTargets, Unread, entry_problem

__all__ = ["FILE", "ProtectedList", "ProtectedTargets", "Unread", "addresses_in", "entry_problem", "targets_in"]
