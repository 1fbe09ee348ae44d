"""Users with their keys, their links to Slack and their groups."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import Any, TypeVar

from core.audit import trail
from core.authorization import COMMAND_LINE, Caller, caller_of, full_login, makers, require_person
from core.common.clock import DAY_MS, Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import AuthenticationError, ResponderBotError
from core.common.grouping import grouped
from core.models import (
    GROUP_NAME,
    PROFILES,
    PROGRAM_PROFILES,
    TLP_NAMES,
    Group,
    GroupInput,
    NewKey,
    Permission,
    Person,
    Profile,
    SlackUsers,
    UserEntry,
)
from core.store import audit
from core.store import people as stored

KEY_BYTES = 32
PREFIX_CHARS = 6
UNUSED_DAYS = 90
NOTE_EVERY_S = 60.0  # a crash loses the uses of as long
OLD_KEY_DAYS = 7
DEFAULT_CLEARANCE = 2  # amber
WHO_LIMIT = 5  # people that are named when somebody has to be asked
LOGIN_LIMIT_CHARS = 254  # as for an e-mail address
# Characters that fit into a header (`X-On-Behalf-Of`); no colon, since Basic has the key after the first one.
_LOGIN = re.compile(r"[!-9;-?A-~]+@[!-9;-?A-~]+", re.ASCII)

S = TypeVar("S", int, str)
T = TypeVar("T")


class People:
    """Manages and authenticates people. Nothing is cached, so that a change takes effect with the next request."""

    def __init__(self, database: Database, user_domain: str, clock: Clock) -> None:
        self._database = database
        self._user_domain = user_domain
        self._clock = clock
        self._temporary: dict[str, str] = {}
        """Logins by the hash of a key that only this process knows."""
        self._used: dict[str, int] = {}
        """The day (ms) on which keys were used that is not stored yet, by hash."""

    def full_login(self, name: str) -> str:
        """A login or its first part as a full login: in lower case, with the domain."""
        return full_login(name, self._user_domain)

    # --- keys -------------------------------------------------------------------------------------------------------

    async def authenticate(
        self, key: str, *, login: str | None = None, on_behalf_of: str | None = None, address: str = ""
    ) -> Caller:
        """The caller with this key, and with this login if one is given, acting as another user if one is named.

        `address` is where the request comes from. On behalf of somebody nobody has `manageUser` or `readAudit`. Raises
        AuthenticationError, and ResponderBotError("forbidden").
        """
        key_hash, today = hash_key(key), self._clock() // DAY_MS * DAY_MS

        def read(reads: Reads) -> tuple[Caller, bool]:
            caller, is_first_today = self._of_key(reads, key_hash, key, today, login, address)
            return (caller if on_behalf_of is None else self._on_behalf_of(reads, caller, on_behalf_of)), is_first_today

        caller, is_first_today = await self._database.read(read)
        if is_first_today:
            self._used[key_hash] = today
        return caller

    async def note_uses(self) -> None:
        """Store which keys were used. Raises ResponderBotError("unavailable")."""
        used = dict(self._used)
        if used:
            await self._database.transaction(lambda tx: stored.set_keys_used(tx, used))
            for key_hash in used:
                self._used.pop(key_hash, None)

    def _of_key(
        self, reads: Reads, key_hash: str, key: str, today: int, login: str | None, address: str
    ) -> tuple[Caller, bool]:
        """The caller with a key, and whether it is the first use today that should be noted."""
        temporary = self._temporary.get(key_hash)
        row = stored.by_login(reads, temporary) if temporary is not None else stored.by_key_hash(reads, key_hash)
        if row is None or (temporary is None and not hmac.compare_digest(row["hash"], key_hash)):
            raise AuthenticationError("unknown")
        if row["disabled"]:
            raise AuthenticationError("disabled")
        if login is not None and self.full_login(login) != row["login"]:
            raise AuthenticationError("login")
        caller = caller_of(row, acted_through=row["login"])
        if temporary is not None:
            return replace(caller, key="temporary", key_prefix=key[:PREFIX_CHARS]), False
        if row["expires_at"] is not None and row["expires_at"] <= self._clock():
            raise AuthenticationError("expired")
        if not _is_from(stored.addresses_of_key(row), address):
            raise AuthenticationError("address")
        caller = replace(caller, key=row["name"], key_prefix=row["prefix"])
        if row["key_clearance"] is not None:
            caller = replace(caller, clearance=min(caller.clearance, row["key_clearance"]), is_key_bound=True)
        return caller, row["last_used_day"] != today

    def _on_behalf_of(self, reads: Reads, caller: Caller, name: str) -> Caller:
        caller.require("actOnBehalf", "act for somebody else")
        login = self.full_login(name)
        unknown = ResponderBotError("forbidden", f"User {login} is unknown")
        row = self._with_access(reads, stored.by_login(reads, login), unknown)
        user = caller_of(row, acted_through=caller.login)
        clearance = min(user.clearance, caller.clearance) if caller.is_key_bound else user.clearance
        return replace(
            caller,
            login=user.login,
            permissions=user.permissions - {"manageUser", "readAudit"},
            profile=user.profile,
            clearance=clearance,
        )

    async def temporary_key(self, name: str, profile: Profile) -> str:
        """A further key of a user, who is added if missing; it works in this process only, until that ends.

        So processes on one database, each with a bot of its own, don't replace each other's key.
        """
        try:
            await self.add(name, profile, by=trail.CORE)
        except ResponderBotError as error:
            if error.code != "exists":
                raise
        key = secrets.token_urlsafe(KEY_BYTES)
        self._temporary[hash_key(key)] = self.full_login(name)
        return key

    async def new_key(self, caller: Caller, name: str, *, keep_old: bool = False) -> NewKey:
        """Replace a user's key; with `keep_old` the old one works for OLD_KEY_DAYS more.

        Raises ResponderBotError("not_found").
        """
        key = secrets.token_urlsafe(KEY_BYTES)

        def work(tx: Transaction, now: int) -> NewKey:
            login = self._user(tx, name)["login"]
            old_until = now + OLD_KEY_DAYS * DAY_MS if keep_old else None
            if old_until is None:
                stored.delete_key(tx, login, stored.DEFAULT_KEY)
                stored.delete_key(tx, login, stored.REPLACED_KEY)
            else:
                stored.keep_replaced_key(tx, login, old_until)
            could_use_it = json.dumps(sorted({caller.login, *makers(tx, caller)}))
            _insert_key(tx, now, login, stored.DEFAULT_KEY, key, made_by=could_use_it)
            trail.record(tx, now, "key.made", by=caller.login, object=login, old_key_until=old_until)
            return NewKey(login=login, key=key)

        return await self._change(work)

    async def add_key(
        self,
        login: str,
        name: str,
        *,
        expires_at: int | None = None,
        clearance: int | None = None,
        addresses: Sequence[str] = (),
    ) -> str:
        """Add a key beside the others of a user; `addresses` are networks such as 192.0.2.0/24. Returns the key.

        Raises ResponderBotError: not_found, exists (one with this name), bad_request.
        """
        key = secrets.token_urlsafe(KEY_BYTES)
        if not re.fullmatch(GROUP_NAME, name):
            sentence = f"{name[:64]!r} can't name a key; take a word of small letters, such as nightly."
            raise ResponderBotError("bad_request", sentence)
        if expires_at is not None and expires_at <= self._clock():
            raise ResponderBotError("bad_request", "The key would have expired already; give a later day.")
        networks = [_network(text) for text in addresses]

        def work(tx: Transaction, now: int) -> str:
            user = self._user(tx, login)["login"]
            bounds = {"expires_at": expires_at, "clearance": clearance, "addresses": json.dumps(networks)}
            _insert_key(tx, now, user, name, key, **bounds)
            trail.record(
                tx,
                now,
                "key.made",
                by=COMMAND_LINE.login,
                object=user,
                name=name,
                expires_at=expires_at,
                clearance=None if clearance is None else TLP_NAMES[clearance],
                addresses=networks,
            )
            return key

        return await self._change(work)

    async def revoke_key(self, login: str, name: str) -> str:
        """End a key with the next request; returns the login. Raises ResponderBotError("not_found")."""

        def work(tx: Transaction, now: int) -> str:
            user = str(self._user(tx, login)["login"])
            if not stored.delete_key(tx, user, name):
                sentence = f"{user} has no key {name}; `responder-bot key list {user}` shows which there are."
                raise ResponderBotError("not_found", sentence)
            trail.record(tx, now, "key.revoked", by=COMMAND_LINE.login, object=user, name=name)
            return user

        return await self._change(work)

    async def keys(self, login: str) -> Sequence[Row]:
        """The keys of a user, by name. Raises ResponderBotError("not_found")."""
        return await self._database.read(lambda reads: stored.keys_of(reads, self._user(reads, login)["login"]))

    async def unused_keys(self) -> Sequence[tuple[str, str]]:
        """Login and name of each key that nobody has used for UNUSED_DAYS."""
        before = self._clock() - UNUSED_DAYS * DAY_MS
        rows = await self._database.read(lambda reads: stored.keys_unused_since(reads, before))
        return [(row["login"], row["name"]) for row in rows]

    # --- users ------------------------------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        profile: Profile,
        *,
        clearance: int = DEFAULT_CLEARANCE,
        slack_id: str = "",
        by: str = COMMAND_LINE.login,
    ) -> str:
        """Add a user, linked to `slack_id` if given; returns the key, which is stored only as a hash.

        Raises ResponderBotError: "exists", or "bad_request" for an invalid login or Slack id; nothing is added then.
        """
        login, key = self._new_login(name), secrets.token_urlsafe(KEY_BYTES)
        slack_link = parse_slack_id(slack_id) if slack_id else None
        if slack_link and profile in PROGRAM_PROFILES:
            raise _cannot_link(login, profile)

        def work(tx: Transaction, now: int) -> str:
            stored.insert(tx, login, profile, clearance, now)
            _insert_key(tx, now, login, stored.DEFAULT_KEY, key)
            if slack_link is not None:
                stored.link(tx, *slack_link, login)
            clear = TLP_NAMES[clearance]
            texts = {"slack": slack_id.strip()}
            trail.record(tx, now, "user.added", by=by, object=login, profile=profile, clearance=clear, texts=texts)
            return key

        return await self._change(work)

    async def all(self) -> Sequence[UserEntry]:
        return await self._database.read(_entries)

    async def who(self, clearance: int, permission: Permission | None = None) -> Sequence[Person]:
        """The first people with access who may see this TLP and have this permission, by login."""
        rows = await self._database.read(stored.users)
        people = (_person(row) for row in rows if not row["disabled"] and row["profile"] not in PROGRAM_PROFILES)
        able = (p for p in people if p.clearance >= clearance and (permission is None or permission in p.permissions))
        return list(islice(able, WHO_LIMIT))

    async def disable(self, caller: Caller, name: str) -> UserEntry:
        """End a user's access with the next request. Raises ResponderBotError: forbidden, not_found."""
        return await self._set_disabled(caller, name, True)

    async def enable(self, caller: Caller, name: str) -> UserEntry:
        """Give a disabled user access again, with the old key. Raises ResponderBotError: forbidden, not_found."""
        return await self._set_disabled(caller, name, False)

    async def _set_disabled(self, caller: Caller, name: str, disabled: bool) -> UserEntry:
        verb = "disable" if disabled else "enable"

        def work(tx: Transaction, now: int) -> UserEntry:
            login = self._user(tx, name)["login"]
            if login == caller.login:
                raise ResponderBotError("forbidden", f"You can't {verb} your own user; ask another admin.")
            stored.set_user(tx, login, "disabled", int(disabled))
            trail.record(tx, now, "user.disabled" if disabled else "user.enabled", by=caller.login, object=login)
            return next(user for user in _entries(tx) if user.login == login)

        return await self._change(work)

    async def set_profile(self, name: str, profile: Profile) -> str:
        """Change a user's permissions with the next request; returns the login. Raises "not_found"."""
        return await self._set(name, "user.profile", profile, str)

    async def set_clearance(self, name: str, clearance: int) -> str:
        """Change the highest TLP that a user may see in Slack, with the next request; returns the login.

        Raises ResponderBotError("not_found").
        """
        return await self._set(name, "user.clearance", clearance, TLP_NAMES.__getitem__)

    async def _set(self, name: str, what: trail.What, value: S, shown: Callable[[S], str]) -> str:
        def work(tx: Transaction, now: int) -> str:
            row, column = self._user(tx, name), what.removeprefix("user.")
            login = row["login"]
            stored.set_user(tx, login, column, value)
            before, after = shown(row[column]), shown(value)
            trail.record(tx, now, what, by=COMMAND_LINE.login, object=login, before=before, after=after)
            return str(login)

        return await self._change(work)

    def _user(self, tx: Reads, name: str) -> Row:
        login = self.full_login(name)
        row = stored.by_login(tx, login)
        if row is None:
            raise ResponderBotError("not_found", f"There is no user {login}; `responder-bot user list` shows all.")
        return row

    def _new_login(self, name: str) -> str:
        """The login of a user to be added. Raises ResponderBotError("bad_request") for what can't be one."""
        login = self.full_login(name)
        if not _LOGIN.fullmatch(login) or len(login) > LOGIN_LIMIT_CHARS:
            sentence = f"{name!r} can't be a login; take a name such as alice, or an address such as alice@example.org."
            raise ResponderBotError("bad_request", sentence)
        return login

    # --- links to Slack ---------------------------------------------------------------------------------------------

    async def person_by_slack(self, team: str, slack_user: str) -> Person:
        """The user linked to a person in Slack, with or without a team.

        Raises ResponderBotError("not_found"), with the detail `ended` (who did that) if that one's access was ended.
        """

        unknown = ResponderBotError("not_found", f"No user is linked to the Slack id {slack_user}; ask an admin.")

        def read(reads: Reads) -> Person:
            row = stored.by_slack(reads, team, slack_user) or stored.by_slack(reads, "", slack_user)
            return _person(self._with_access(reads, row, unknown))

        return await self._database.read(read)

    def _with_access(self, reads: Reads, row: Row | None, unknown: ResponderBotError) -> Row:
        """The row of a person; raises `unknown`, or likewise with who ended their access, if the audit still has it."""
        if row is None or row["profile"] in PROGRAM_PROFILES:
            raise unknown
        if not row["disabled"]:
            return row
        ended, name = audit.last_of(reads, row["login"], "user.disabled"), row["login"]
        by = json.loads(ended["doc"])["by"] if ended is not None else ""
        said = (
            f"Your access ({name.removesuffix(f'@{self._user_domain}')}) was ended{f' by {by}' if '@' in by else ''}."
        )
        raise ResponderBotError(unknown.code, f"{said} Ask an administrator if that is wrong.", details={"ended": by})

    async def slack_users(self, login: str) -> SlackUsers:
        """The Slack users that a login is linked to; none if it isn't, or there is no such login."""
        rows = await self._database.read(lambda reads: stored.links_of(reads, login))
        return SlackUsers(login=login, slack_ids=[f"{row['team']}:{row['slack_user']}" for row in rows])

    async def link(self, name: str, slack_id: str) -> str:
        """Link a person in Slack (`U...` or `T...:U...`); returns the login.

        Raises ResponderBotError: "not_found", "exists" or "bad_request".
        """
        login = self.full_login(name)
        team, slack_user = parse_slack_id(slack_id)

        def work(tx: Transaction, now: int) -> str:
            row = self._user(tx, name)
            if row["profile"] in PROGRAM_PROFILES:
                raise _cannot_link(login, row["profile"])
            if stored.links_of(tx, login):
                raise ResponderBotError(
                    "exists", f"{login} is linked already; `responder-bot user unlink {login}` first."
                )
            stored.link(tx, team, slack_user, login)
            texts = {"slack": slack_id.strip()}
            trail.record(tx, now, "user.linked", by=COMMAND_LINE.login, object=login, texts=texts)
            return login

        return await self._change(work)

    async def unlink(self, name: str) -> str:
        """Remove a user's link; returns the login. Raises ResponderBotError("not_found") if there is none."""
        login = self.full_login(name)

        def work(tx: Transaction, now: int) -> str:
            links = stored.links_of(tx, login)
            texts = {"slack": ", ".join(f"{row['team']}:{row['slack_user']}".removeprefix(":") for row in links)}
            if not stored.unlink(tx, login):
                sentence = f"{login} is not linked to anybody in Slack; `responder-bot user list` shows who is."
                raise ResponderBotError("not_found", sentence)
            trail.record(tx, now, "user.unlinked", by=COMMAND_LINE.login, object=login, texts=texts)
            return login

        return await self._change(work)

    # --- user groups ------------------------------------------------------------------------------------------------

    async def groups(self) -> Sequence[Group]:
        """All user groups that have members."""
        return await self._database.read(_groups)

    async def set_members(self, caller: Caller, name: str, request: GroupInput) -> Group:
        """Replace a group's members. Raises ResponderBotError("bad_request")."""

        def work(tx: Transaction, now: int) -> Group:
            members = sorted({require_person(tx, self.full_login(login)) for login in request.members})
            _set_members(tx, now, caller.login, _group(name), members)
            return Group(name=name, members=members)

        return await self._change(work)

    async def add_member(self, name: str, login: str) -> str:
        """Put a person into a group; returns the login. Raises ResponderBotError("bad_request")."""

        def work(tx: Transaction, now: int) -> str:
            member, group = require_person(tx, self.full_login(login)), _group(name)
            _set_members(tx, now, COMMAND_LINE.login, group, [*stored.members_of(tx, group), member])
            return member

        return await self._change(work)

    async def remove_member(self, name: str, login: str) -> str:
        """Take a person out of a group; returns the login. Raises ResponderBotError("not_found")."""
        member = self.full_login(login)

        def work(tx: Transaction, now: int) -> str:
            members = stored.members_of(tx, name)
            if member not in members:
                raise ResponderBotError("not_found", f"{member} is not in the group {name}; `group list` shows who is.")
            _set_members(tx, now, COMMAND_LINE.login, name, [login for login in members if login != member])
            return member

        return await self._change(work)

    def erase_in(self, tx: Transaction, now: int, login: str) -> None:
        """Delete a user with keys, links and groups."""
        for group in [row["name"] for row in stored.members(tx) if row["login"] == login]:
            members = [member for member in stored.members_of(tx, group) if member != login]
            _set_members(tx, now, COMMAND_LINE.login, group, members)
        stored.delete_user(tx, login)

    async def _change(self, work: Callable[[Transaction, int], T]) -> T:
        now = self._clock()
        return await self._database.transaction(lambda tx: work(tx, now))


def _set_members(tx: Transaction, now: int, by: str, group: str, logins: Sequence[str]) -> None:
    """Replace the members of a group; the audit gets a row if that changes anything."""
    before, after = set(stored.members_of(tx, group)), set(logins)
    if before == after:
        return
    stored.set_members(tx, group, sorted(after))
    added, removed = sorted(after - before), sorted(before - after)
    trail.record(tx, now, "group.members", by=by, object=f"@{group}", added=added, removed=removed)


def _group(name: str) -> str:
    if not re.fullmatch(GROUP_NAME, name):
        sentence = f"{name[:64]!r} can't be a group; take a word of small letters, such as containment."
        raise ResponderBotError("bad_request", sentence)
    return name


def _groups(reads: Reads) -> list[Group]:
    members = grouped((row["name"], row["login"]) for row in stored.members(reads))
    return [Group(name=name, members=logins) for name, logins in members.items()]


def _entries(reads: Reads) -> list[UserEntry]:
    links = ((row["login"], f"{row['team']}:{row['slack_user']}") for row in stored.links(reads))
    slack_ids = grouped((login, link.removeprefix(":")) for login, link in links)
    groups = _groups(reads)
    return [
        UserEntry(
            login=row["login"],
            profile=row["profile"],
            clearance=row["clearance"],
            disabled=bool(row["disabled"]),
            created_at=row["created_at"],
            slack_ids=slack_ids.get(row["login"], []),
            groups=[group.name for group in groups if row["login"] in group.members],
        )
        for row in stored.users(reads)
    ]


def _person(row: Row) -> Person:
    """A stored user as clients get it."""
    profile: Profile = row["profile"]
    return Person(login=row["login"], profile=profile, permissions=list(PROFILES[profile]), clearance=row["clearance"])


def parse_slack_id(slack_id: str) -> tuple[str, str]:
    """Team and user of `T...:U...`; the team is `""` if there is none. Raises ResponderBotError("bad_request")."""
    found = re.fullmatch("(?:([TE][A-Z0-9]+):)?([UW][A-Z0-9]+)", slack_id.strip())
    if found is None:
        raise ResponderBotError(
            "bad_request",
            f"{slack_id!r} is not a Slack id, such as U0123ABCD ('Copy member ID' in the profile), or"
            " T0123ABCD:U0123ABCD with the team.",
        )
    return found[1] or "", found[2]


def _insert_key(tx: Transaction, now: int, login: str, name: str, key: str, **bounds: Any) -> None:
    values = {"hash": hash_key(key), "login": login, "name": name, "prefix": key[:PREFIX_CHARS], "created_at": now}
    stored.insert_key(tx, {**values, **bounds})


def _network(text: str) -> str:
    try:
        return str(ip_network(text.strip()))
    except ValueError:
        sentence = f"{text[:64]!r} is no address or network; give one such as 192.0.2.7 or 192.0.2.0/24."
        raise ResponderBotError("bad_request", sentence) from None


def _is_from(networks: Sequence[str], address: str) -> bool:
    """Whether an address is in one of these networks; without networks any is."""
    return not networks or (bool(address) and any(ip_address(address) in ip_network(network) for network in networks))


def hash_key(key: str) -> str:
    """SHA-256 without salt suffices, because a key is 256 random bits."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _cannot_link(login: str, profile: Profile) -> ResponderBotError:
    sentence = f"{login} has the profile {profile}, which is for programs; link a user with another profile."
    return ResponderBotError("bad_request", sentence)
