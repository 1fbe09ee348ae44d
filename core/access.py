"""Users: their API keys, profiles and permissions, and the people in Slack who are linked to them."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from core.common.clock import DAY_MS, Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import PROFILES, PROGRAM_PROFILES, TLP_NAMES, Permission, Person, Profile, SlackUsers
from core.store import people, users

KEY_BYTES = 32
OLD_KEY_DAYS = 7
DEFAULT_CLEARANCE = 2  # amber
WHO_LIMIT = 5  # people that are named when somebody has to be asked
_PERMISSIONS = {profile: frozenset(permissions) for profile, permissions in PROFILES.items()}
LOGIN_LIMIT_CHARS = 254  # as for an e-mail address
# Characters that fit into a header (`X-On-Behalf-Of`); no colon, since Basic has the key after the first one.
_LOGIN = re.compile(r"[!-9;-?A-~]+@[!-9;-?A-~]+", re.ASCII)


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
    def sees_up_to(self) -> int:
        """The highest TLP that an answer to this request may name."""
        return self.clearance if self.is_on_behalf else 3

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


class Access:
    """Manages and authenticates users. Nothing is cached, so that changes take effect with the next request."""

    def __init__(self, database: Database, user_domain: str, clock: Clock) -> None:
        self._database = database
        self._user_domain = user_domain
        self._clock = clock
        self._temporary: dict[str, str] = {}
        """Logins by the hash of a key that only this process knows."""

    def normalize_login(self, name: str) -> str:
        """A login or its first part as a full login: in lower case, with the domain."""
        return full_login(name, self._user_domain)

    async def authenticate(self, key: str, *, login: str | None = None, on_behalf_of: str | None = None) -> Caller:
        """The caller with this key, and with this login if one is given, acting as another user if one is named.

        On behalf of somebody nobody has `manageUser`. Raises ResponderBotError("authentication") and "forbidden".
        """
        key_hash = hash_key(key)

        def read(reads: Reads) -> Caller:
            row = self._by_key_hash(reads, key_hash)
            if row is None or row["disabled"]:
                raise _authentication_failure()
            if login is not None and self.normalize_login(login) != row["login"]:
                raise _authentication_failure()
            caller = _caller(row, acted_through=row["login"])
            return caller if on_behalf_of is None else self._on_behalf_of(reads, caller, on_behalf_of)

        return await self._database.read(read)

    def _by_key_hash(self, reads: Reads, key_hash: str) -> Row | None:
        temporary = self._temporary.get(key_hash)
        if temporary is not None:
            return users.by_login(reads, temporary)
        row = users.by_key_hash(reads, key_hash, self._clock())
        return row if row is not None and hmac.compare_digest(row["key_hash"], key_hash) else None

    def _on_behalf_of(self, reads: Reads, caller: Caller, name: str) -> Caller:
        caller.require("actOnBehalf", "act for somebody else")
        login = self.normalize_login(name)
        row = users.by_login(reads, login)
        if row is None or row["disabled"] or row["profile"] in PROGRAM_PROFILES:
            raise ResponderBotError("forbidden", f"User {login} is unknown or disabled")
        user = _caller(row, acted_through=caller.login)
        return Caller(user.login, user.permissions - {"manageUser"}, user.acted_through, user.profile, user.clearance)

    async def person_by_slack(self, team: str, slack_user: str) -> Person:
        """The user linked to a person in Slack, with or without a team. Raises ResponderBotError("not_found")."""
        row = await self._database.read(
            lambda reads: users.by_slack(reads, team, slack_user) or users.by_slack(reads, "", slack_user)
        )
        if row is None or row["disabled"] or row["profile"] in PROGRAM_PROFILES:
            raise ResponderBotError("not_found", f"No user is linked to the Slack id {slack_user}; ask an admin.")
        return person_of(row)

    async def who(self, clearance: int, permission: Permission | None = None) -> Sequence[Person]:
        """The first people with access who may see this TLP and have this permission, by login."""
        rows = (row for row in await self.list_users() if not row["disabled"])
        people = (person_of(row) for row in rows if row["profile"] not in PROGRAM_PROFILES)
        able = (p for p in people if p.clearance >= clearance and (permission is None or permission in p.permissions))
        return list(islice(able, WHO_LIMIT))

    async def slack_users(self, login: str) -> SlackUsers:
        """The Slack users that a login is linked to; none if it isn't, or there is no such login."""
        rows = await self._database.read(lambda reads: users.links_of(reads, login))
        return SlackUsers(login=login, slack_ids=[f"{row['team']}:{row['slack_user']}" for row in rows])

    async def add(self, name: str, profile: Profile, *, clearance: int = DEFAULT_CLEARANCE, slack_id: str = "") -> str:
        """Add a user, linked to `slack_id` if given; returns the key, which is stored only as a hash.

        Raises ResponderBotError: "exists", or "bad_request" for an invalid login or Slack id; nothing is added then.
        """
        login, key = self.new_login(name), secrets.token_urlsafe(KEY_BYTES)
        slack_link = parse_slack_id(slack_id) if slack_id else None
        if slack_link and profile in PROGRAM_PROFILES:
            raise _cannot_link(login, profile)
        now = self._clock()

        def work(tx: Transaction) -> None:
            users.insert(tx, login, profile, clearance, hash_key(key), now)
            if slack_link is not None:
                users.link(tx, *slack_link, login)

        await self._database.transaction(work)
        return key

    async def temporary_key(self, name: str, profile: Profile) -> str:
        """A further key of a user, who is added if missing; only this process accepts it, and for as long as it lives.

        So processes on one database, each with a bot of its own, don't replace each other's key.
        """
        try:
            await self.add(name, profile)
        except ResponderBotError as error:
            if error.code != "exists":
                raise
        key = secrets.token_urlsafe(KEY_BYTES)
        self._temporary[hash_key(key)] = self.normalize_login(name)
        return key

    async def new_key(self, name: str, *, keep_old: bool = False) -> str:
        """Replace a user's key, which works for OLD_KEY_DAYS more if `keep_old`; returns the new one.

        Raises ResponderBotError("not_found").
        """
        login, key = self.normalize_login(name), secrets.token_urlsafe(KEY_BYTES)
        until = self._clock() + OLD_KEY_DAYS * DAY_MS if keep_old else None
        updated = await self._database.transaction(lambda tx: users.set_key(tx, login, hash_key(key), until))
        if not updated:
            raise self._no_user(login)
        return key

    async def disable(self, name: str) -> str:
        """End a user's access with the next request; returns the login. Raises ResponderBotError("not_found")."""
        return await self._set_disabled(name, True)

    async def enable(self, name: str) -> str:
        """Give a disabled user access again, with the old key; returns the login. Raises "not_found"."""
        return await self._set_disabled(name, False)

    async def set_profile(self, name: str, profile: Profile) -> str:
        """Change a user's permissions with the next request; returns the login. Raises "not_found"."""
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.set_profile(tx, login, profile)):
            raise self._no_user(login)
        return login

    async def set_clearance(self, name: str, clearance: int) -> str:
        """Change the highest TLP that a user may see in Slack, with the next request; returns the login.

        Raises ResponderBotError("not_found").
        """
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.set_clearance(tx, login, clearance)):
            raise self._no_user(login)
        return login

    async def _set_disabled(self, name: str, disabled: bool) -> str:
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.set_disabled(tx, login, disabled)):
            raise self._no_user(login)
        return login

    async def link(self, name: str, slack_id: str) -> str:
        """Link a person in Slack (`U...` or `T...:U...`); returns the login.

        Raises ResponderBotError: "not_found", "exists" or "bad_request".
        """
        login = self.normalize_login(name)
        team, slack_user = parse_slack_id(slack_id)

        def work(tx: Transaction) -> None:
            row = users.by_login(tx, login)
            if row is None:
                raise self._no_user(login)
            if row["profile"] in PROGRAM_PROFILES:
                raise _cannot_link(login, row["profile"])
            if users.links_of(tx, login):
                raise ResponderBotError(
                    "exists", f"{login} is linked already; `responder-bot user unlink {login}` first."
                )
            users.link(tx, team, slack_user, login)

        await self._database.transaction(work)
        return login

    async def unlink(self, name: str) -> str:
        """Remove a user's link; returns the login. Raises ResponderBotError("not_found") if there is none."""
        login = self.normalize_login(name)
        if not await self._database.transaction(lambda tx: users.unlink(tx, login)):
            sentence = f"{login} is not linked to anybody in Slack; `responder-bot user list` shows who is."
            raise ResponderBotError("not_found", sentence)
        return login

    async def list_users(self) -> Sequence[Row]:
        """All users: login, profile, clearance, disabled, created_at, slack_ids."""
        return await self._database.read(users.list_all)

    def new_login(self, name: str) -> str:
        """The login of a user to be added. Raises ResponderBotError("bad_request") for what can't be one."""
        login = self.normalize_login(name)
        if not _LOGIN.fullmatch(login) or len(login) > LOGIN_LIMIT_CHARS:
            sentence = f"{name!r} can't be a login; take a name such as alice, or an address such as alice@example.org."
            raise ResponderBotError("bad_request", sentence)
        return login

    def _no_user(self, login: str) -> ResponderBotError:
        return ResponderBotError("not_found", f"There is no user {login}; `responder-bot user list` shows all.")


def current_permissions(reads: Reads, login: str) -> frozenset[Permission]:
    """A user's permissions at this moment; none if the user is disabled or unknown.

    For requests that are carried out later: read it in the transaction that does so.
    """
    row = users.by_login(reads, login)
    return frozenset() if row is None or row["disabled"] else _PERMISSIONS[row["profile"]]


def current_caller(reads: Reads, login: str, acted_through: str) -> Caller | None:
    """A user at this moment, as the caller of what core does in their name; None if they are disabled or unknown.

    For what they asked for with the key of `acted_through`.
    """
    row = users.by_login(reads, login)
    return None if row is None or row["disabled"] else _caller(row, acted_through=acted_through)


def require_person(reads: Reads, name: str) -> str:
    """The login, if it is of a person with access. Raises ResponderBotError("bad_request")."""
    login = name.strip().lower()
    row = users.by_login(reads, login)
    if row is None or row["disabled"] or row["profile"] in PROGRAM_PROFILES:
        sentence = f"User {login} is unknown, disabled or a program; give the whole login of somebody with access."
        raise ResponderBotError("bad_request", sentence)
    return login


def full_login(name: str, user_domain: str) -> str:
    """A login or its first part as a full login: in lower case, with the domain."""
    name = name.strip().lower()
    return name if "@" in name else f"{name}@{user_domain}"


def expand(reads: Reads, names: Iterable[str], user_domain: str) -> frozenset[str]:
    """The logins that a policy names: logins or their first parts, and groups as `@containment` with all members.

    Read it in the transaction that decides by it. Rights are no part of it: a member may be disabled.
    """
    found: set[str] = set()
    for name in names:
        found |= {*people.members_of(reads, name[1:])} if name.startswith("@") else {full_login(name, user_domain)}
    return frozenset(found)


def current_clearance(reads: Reads, login: str) -> int:
    """A user's clearance at this moment; -1, which covers nothing, if the user is unknown."""
    row = users.by_login(reads, login)
    return -1 if row is None else int(row["clearance"])


def too_high(tlp: int, clearance: int, who: str = "you") -> str:
    """Why a user (`who`) with this clearance may not act on an object with this TLP."""
    seen = f"up to TLP:{TLP_NAMES[clearance].upper()}" if clearance >= 0 else "nothing"
    return f"it is TLP:{TLP_NAMES[tlp].upper()} and {who} may see {seen}"


def parse_slack_id(slack_id: str) -> tuple[str, str]:
    """Team and user of `T...:U...`; the team is `""` if there is none. Raises ResponderBotError("bad_request")."""
    team, _, slack_user = slack_id.strip().rpartition(":")
    if slack_user[:1] not in ("U", "W") or not slack_user.isalnum() or (team and not team.startswith(("T", "E"))):
        raise ResponderBotError(
            "bad_request",
            f"{slack_id!r} is not a Slack id, such as U0123ABCD ('Copy member ID' in the profile), or"
            " T0123ABCD:U0123ABCD with the team.",
        )
    return team, slack_user


def person_of(row: Row) -> Person:
    """A stored user as clients get it."""
    profile: Profile = row["profile"]
    return Person(login=row["login"], profile=profile, permissions=list(PROFILES[profile]), clearance=row["clearance"])


def _caller(row: Row, *, acted_through: str) -> Caller:
    profile: Profile = row["profile"]
    return Caller(row["login"], _PERMISSIONS[profile], acted_through, profile, row["clearance"])


def hash_key(key: str) -> str:
    """SHA-256 without salt suffices, because a key is 256 random bits."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _cannot_link(login: str, profile: Profile) -> ResponderBotError:
    sentence = f"{login} has the profile {profile}, which is for programs; link a user with another profile."
    return ResponderBotError("bad_request", sentence)


def _authentication_failure() -> ResponderBotError:
    return ResponderBotError("authentication", "Authentication failure")
