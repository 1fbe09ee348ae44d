"""Who makes a request, and what they may do: permissions, clearance, and the people that a policy names."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.common.database import Reads, Row
from core.common.errors import ResponderBotError
from core.models import PROFILES, PROGRAM_PROFILES, TLP_NAMES, Permission, Profile
from core.store import people

_PERMISSIONS = {profile: frozenset(permissions) for profile, permissions in PROFILES.items()}


@dataclass(frozen=True)
class Caller:
    """The user that a request acts as, and the user whose key it came with."""

    login: str
    permissions: frozenset[Permission]
    acted_through: str
    """The login whose key the request came with: another than `login` if it is on behalf of this user."""
    profile: Profile
    clearance: int
    """The highest TLP that the user may see in Slack; it binds whoever acts on the user's behalf."""
    key: str = ""
    """The name of the key that the request came with."""
    key_prefix: str = ""
    """How that key begins, for the log."""
    is_key_bound: bool = False
    """Whether the key has a clearance of its own, which binds its user too."""

    @property
    def is_on_behalf(self) -> bool:
        """Whether another user, such as the bot's, makes the request on behalf of this one."""
        return self.acted_through != self.login

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def why_not(self, permission: Permission, what: str, *, label: str = "") -> str:
        """The message of a 403 if the permission is missing, else `""`; `label` is how it names the permission."""
        if self.may(permission):
            return ""
        return f"You are not authorized to {what}, you haven't the permission {label or permission}"

    def require(self, permission: Permission, what: str) -> None:
        """Raises ResponderBotError("forbidden") if the permission is missing."""
        if sentence := self.why_not(permission, what):
            raise ResponderBotError("forbidden", sentence, details={"permission": permission})

    @property
    def bound_to(self) -> int | None:
        """The clearance that binds this request; None with an own key that has none."""
        return self.clearance if self.is_on_behalf or self.is_key_bound else None

    @property
    def sees_up_to(self) -> int:
        """The highest TLP that an answer to this request may name."""
        return 3 if self.bound_to is None else self.bound_to

    def why_not_cleared(self, tlp: int) -> str:
        """Why the request may not change an object with this TLP: it is on behalf of a user who may not see it.

        `""` if they may see it, or use their own key.
        """
        return too_high(tlp, self.clearance) if tlp > self.sees_up_to else ""

    def require_clearance(self, tlp: int, what: str) -> None:
        """Raises ResponderBotError("forbidden") with `why_not_cleared`, if there is one."""
        if reason := self.why_not_cleared(tlp):
            sentence = f"You are not authorized to {what}, {reason}; ask somebody who may see it"
            raise ResponderBotError("forbidden", sentence, details={"tlp": tlp, "clearance": self.clearance})


COMMAND_LINE = Caller("the command line", _PERMISSIONS["org-admin"], "the command line", "org-admin", 3)
"""Whoever runs a command on the database itself."""


def current_permissions(reads: Reads, login: str) -> frozenset[Permission]:
    """A user's permissions now; none if the user is disabled or unknown.

    A request that is carried out later reads them in the transaction that does so.
    """
    row = people.by_login(reads, login)
    return frozenset() if row is None or row["disabled"] else _PERMISSIONS[row["profile"]]


def current_caller(reads: Reads, login: str, acted_through: str) -> Caller | None:
    """The user that core acts for now, with the key of `acted_through`; None if they are disabled or unknown."""
    row = people.by_login(reads, login)
    return None if row is None or row["disabled"] else caller_of(row, acted_through=acted_through)


def require_person(reads: Reads, name: str) -> str:
    """The login, if it is of a person with access. Raises ResponderBotError("bad_request")."""
    login = name.strip().lower()
    row = people.by_login(reads, login)
    if row is None or row["disabled"] or row["profile"] in PROGRAM_PROFILES:
        sentence = f"User {login} is unknown, disabled or a program; give the whole login of somebody with access."
        raise ResponderBotError("bad_request", sentence)
    return login


def full_login(name: str, user_domain: str) -> str:
    """A login or its first part as a full login: in lower case, with the domain."""
    name = name.strip().lower()
    return name if "@" in name else f"{name}@{user_domain}"


def expand(reads: Reads, names: Iterable[str], user_domain: str) -> frozenset[str]:
    """The logins that a policy names: logins or their first parts, and user groups as `@containment` with all members.

    Read it in the transaction that decides by it. Rights are no part of it: a member may be disabled.
    """
    logins: set[str] = set()
    for name in names:
        logins |= {*people.members_of(reads, name[1:])} if name.startswith("@") else {full_login(name, user_domain)}
    return frozenset(logins)


def profiles_with(permission: Permission) -> list[Profile]:
    """The profiles that have a permission."""
    return [profile for profile, permissions in _PERMISSIONS.items() if permission in permissions]


def makers(reads: Reads, caller: Caller) -> set[str]:
    """Who made the key that a request came with."""
    return people.makers(reads, caller.acted_through, caller.key)


def current_clearance(reads: Reads, login: str) -> int:
    """A user's clearance now; -1, which covers nothing, if the user is unknown."""
    row = people.by_login(reads, login)
    return -1 if row is None else int(row["clearance"])


def too_high(tlp: int, clearance: int, who: str = "you") -> str:
    """Why a user (`who`) with this clearance may not act on an object with this TLP."""
    seen = f"up to TLP:{TLP_NAMES[clearance].upper()}" if clearance >= 0 else "nothing"
    return f"it is TLP:{TLP_NAMES[tlp].upper()} and {who} may see {seen}"


def caller_of(row: Row, *, acted_through: str) -> Caller:
    """A stored user as a caller."""
    profile: Profile = row["profile"]
    return Caller(row["login"], _PERMISSIONS[profile], acted_through, profile, row["clearance"])
