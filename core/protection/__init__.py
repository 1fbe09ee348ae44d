"""Targets, and which are protected: no responder may be run on them (core/docs/guards.md)."""

from core.protection.blockable import BLOCK, UNBLOCK, Blockable, ListName
from core.protection.parsing import KINDS, Look, MalformedError, Parsed, TargetKind, look_of, parse
from core.protection.protected import FILE, ProtectedList, ProtectedTargets, Unread, entry_problem
