"""Who may do what: users, their keys, their permissions, the Slack people linked to them."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from core.common.clock import Clock
from core.common.database.sqlite import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import PROFILES, PROGRAM_PROFILES, Permission, Person, Profile
from core.store import users

KEY_BYTES = 32  # 256 random bits (semantics.md 1)
DEFAULT_CLEARANCE = 2  # amber (slack.md 2)
_PERMISSIONS = {profile: frozenset(permissions) for profile, permissions in PROFILES.items()}
LOGIN_LIMIT_CHARS = 254  # as of an address
# What a header carries: `X-On-Behalf-Of` knows no other characters, and in Basic the key comes after the first colon.
_LOGIN = re.compile(r"[!-9;-?A-~]+@[!-9;-?A-~]+", re.ASCII)


@dataclass(frozen=True)
class Caller:
    """Who a request comes from: the acting user, and the login whose key it was (differs when acting for somebody)."""

    login: str
    permissions: frozenset[Permission]
    key_owner: str
    profile: Profile
    clearance: int

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def refusal(self, permission: Permission, what: str, *, label: str = "") -> str:
        """The sentence of a 403 where the permission is missing, else `""`. `words` may name it otherwise."""
        if self.may(permission):
            return ""
        return f"You are not authorized to {what}, you haven't the permission {label or permission}"

    def require(self, permission: Permission, what: str) -> None:
        """Raises ResponderBotError("forbidden") where the permission is missing."""
        if sentence := self.refusal(permission, what):
            raise ResponderBotError("forbidden", sentence)


class Access:
    """Users and their rights, read anew at each request so that a change counts at once (`semantics.md 1`)."""

    def __init__(self, database: Database, user_domain: str, clock: Clock) -> None:
        self._database = database
        self._user_domain = user_domain
        self._clock = clock

    def normalize_login(self, name: str) -> str:
        """The login that `name` stands for: lower case, with the domain."""
        name = name.strip().lower()
        return name if "@" in name else f"{name}@{self._user_domain}"

    def authenticate(self, key: str, *, login: str | None = None) -> Caller:
        """The caller with this key (and this login, for Basic). Raises ResponderBotError("authentication")."""
        key_hash = _hash(key)
        row = users.by_key_hash(self._database, key_hash)
        if row is None or row["disabled"] or not hmac.compare_digest(row["key_hash"], key_hash):
            raise _unknown()
        if login is not None and self.normalize_login(login) != row["login"]:
            raise _unknown()
        return _caller(row, key_owner=row["login"])

    def on_behalf_of(self, caller: Caller, name: str) -> Caller:
        """The caller as the user `name` (`X-On-Behalf-Of`). Raises ResponderBotError("forbidden")."""
        caller.require("actOnBehalf", "act for somebody else")
        login = self.normalize_login(name)
        row = users.by_login(self._database, login)
        if row is None or row["disabled"] or row["profile"] in PROGRAM_PROFILES:
            raise ResponderBotError("forbidden", f"User {login} is unknown or disabled")
        user = _caller(row, key_owner=caller.login)
        return Caller(user.login, user.permissions - {"manageUser"}, user.key_owner, user.profile, user.clearance)

    def person_by_slack(self, team: str, slack_user: str) -> Person:
        """The user linked to a Slack person (`semantics.md 10`). Raises ResponderBotError("not_found")."""
        row = users.by_slack(self._database, team, slack_user) or users.by_slack(self._database, "", slack_user)
        if row is None or row["disabled"] or row["profile"] in PROGRAM_PROFILES:
            raise ResponderBotError("not_found", f"No user is linked to the Slack id {slack_user}; ask an admin.")
        return person_of(row)

    async def add(self, name: str, profile: Profile, *, clearance: int = DEFAULT_CLEARANCE, slack_id: str = "") -> str:
        """Add a user, linked at once where a Slack id is given; returns the key, which is shown this once.

        Raises ResponderBotError: "exists", or "bad_request" for what is no login or no Slack id; nothing is added then.
        """
        login, key = self._new_login(name), secrets.token_urlsafe(KEY_BYTES)
        person_in_slack = parse_slack_id(slack_id) if slack_id else None
        if person_in_slack and profile in PROGRAM_PROFILES:
            raise _no_person(login, profile)
        now = self._clock()

        def work(tx: Transaction) -> None:
            users.insert(tx, login, profile, clearance, _hash(key), now)
            if person_in_slack is not None:
                users.link(tx, *person_in_slack, login)

        await self._database.transaction(work)
        return key

    async def new_key(self, name: str) -> str:
        """A new key; the old one ends. Raises ResponderBotError("not_found")."""
        login, key = self.normalize_login(name), secrets.token_urlsafe(KEY_BYTES)
        touched = await self._database.transaction(lambda tx: users.set_key(tx, login, _hash(key)))
        if not touched:
            raise self._no_user(login)
        return key

    async def disable(self, name: str) -> str:
        """End a user's access from the next request on; the login. Raises ResponderBotError("not_found")."""
        return await self._set_disabled(name, True)

    async def enable(self, name: str) -> str:
        """Give a disabled user access again, with the key of before; the login. Raises "not_found"."""
        return await self._set_disabled(name, False)

    async def set_profile(self, name: str, profile: Profile) -> str:
        """Change what a user may do, from the next request on; the login. Raises ResponderBotError("not_found")."""
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.set_profile(tx, login, profile)):
            raise self._no_user(login)
        return login

    async def _set_disabled(self, name: str, disabled: bool) -> str:
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.set_disabled(tx, login, disabled)):
            raise self._no_user(login)
        return login

    async def link(self, name: str, slack_id: str) -> str:
        """Link a Slack person (`U...` or `T...:U...`); the login. Raises "not_found", "exists", "bad_request"."""
        login = self.normalize_login(name)
        team, slack_user = parse_slack_id(slack_id)

        def work(tx: Transaction) -> None:
            row = users.by_login(tx, login)
            if row is None:
                raise self._no_user(login)
            if row["profile"] in PROGRAM_PROFILES:
                raise _no_person(login, row["profile"])
            if users.links_of(tx, login):
                raise ResponderBotError(
                    "exists", f"{login} is linked already; `responder-bot user unlink {login}` first."
                )
            users.link(tx, team, slack_user, login)

        await self._database.transaction(work)
        return login

    async def unlink(self, name: str) -> str:
        """Undo a link; the login. Raises ResponderBotError("not_found") where there is none."""
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.unlink(tx, login)):
            sentence = f"{login} is not linked to anybody in Slack; `responder-bot user list` shows who is."
            raise ResponderBotError("not_found", sentence)
        return login

    def list_users(self) -> Sequence[Row]:
        """All users: login, profile, clearance, disabled, created_at, slack_ids."""
        return users.everybody(self._database)

    def _new_login(self, name: str) -> str:
        login = self.normalize_login(name)
        if not _LOGIN.fullmatch(login) or len(login) > LOGIN_LIMIT_CHARS:
            sentence = f"{name!r} can't be a login; take a name such as alice, or an address such as alice@example.org."
            raise ResponderBotError("bad_request", sentence)
        return login

    def _no_user(self, login: str) -> ResponderBotError:
        return ResponderBotError("not_found", f"There is no user {login}; `responder-bot user list` shows all.")


def current_permissions(reads: Reads, login: str) -> frozenset[Permission]:
    """What a user may do at this moment; nothing for one who is disabled or unknown.

    For what was asked earlier and is carried out later: read it in the transaction that carries it out.
    """
    row = users.by_login(reads, login)
    return frozenset() if row is None or row["disabled"] else _PERMISSIONS[row["profile"]]


def parse_slack_id(slack_id: str) -> tuple[str, str]:
    """Team and user of `T...:U...`; an id without a team has the team `""`."""
    team, _, slack_user = slack_id.strip().rpartition(":")
    if slack_user[:1] not in ("U", "W") or not slack_user.isalnum() or (team and not team.startswith(("T", "E"))):
        raise ResponderBotError(
            "bad_request",
            f"{slack_id!r} is no Slack id; it looks like U0123ABCD (in the person's profile: Copy member ID), or"
            " T0123ABCD:U0123ABCD with the team.",
        )
    return team, slack_user


def person_of(row: Row) -> Person:
    profile: Profile = row["profile"]
    return Person(login=row["login"], profile=profile, permissions=list(PROFILES[profile]), clearance=row["clearance"])


def _caller(row: Row, *, key_owner: str) -> Caller:
    profile: Profile = row["profile"]
    return Caller(row["login"], _PERMISSIONS[profile], key_owner, profile, row["clearance"])


def _hash(key: str) -> str:
    """SHA-256 is enough for 256 random bits: there is nothing to guess."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _no_person(login: str, profile: Profile) -> ResponderBotError:
    sentence = f"{login} has the profile {profile}, which is for programs; link a user with another profile."
    return ResponderBotError("bad_request", sentence)


def _unknown() -> ResponderBotError:
    return ResponderBotError("authentication", "Authentication failure")
