"""Requests for access that people make in Slack, and what admins do about users and groups.

What an org-admin may do through the bot is limited, as the bot's key must not be worth an admin's
(core/docs/semantics.md#people-managed-in-slack).
"""

import asyncio
import re
import secrets
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import structlog

from core.access import KEY_BYTES, Access, Caller, hash_key, parse_slack_id, require_person
from core.common.clock import DAY_MS, Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import (
    GROUP_NAME,
    PROGRAM_PROFILES,
    AccessRequest,
    ApproveAccessInput,
    Group,
    NewKey,
    UserEntry,
    parse_id,
)
from core.store import events, objects, users
from core.store import people as stored

KEPT_MS = 30 * DAY_MS
MAX_PENDING = 100
MAX_A_DAY = 3
"""How often one person can ask in a day."""
MAX_LISTED = 200
NAME_CHARS = 100
EXPIRE_EVERY_S = 1.0

log = structlog.get_logger("core.people")

T = TypeVar("T")


class People:
    """Requests, users and groups, for the API."""

    def __init__(self, database: Database, access: Access, clock: Clock) -> None:
        self._database = database
        self._access = access
        self._clock = clock

    # --- requests for access ----------------------------------------------------------------------------------------

    async def request(self, caller: Caller, slack_id: str, name: str) -> tuple[AccessRequest, bool]:
        """The pending request of somebody in Slack, and whether it is new. It expires after a day.

        Raises ResponderBotError: bad_request, conflict (linked already, disabled, too many).
        """
        team, slack_user = parse_slack_id(slack_id)
        name = " ".join(name.split())[:NAME_CHARS] or slack_user

        def work(tx: Transaction, now: int) -> tuple[AccessRequest, bool]:
            linked = users.by_slack(tx, team, slack_user) or users.by_slack(tx, "", slack_user)
            if linked is not None and linked["disabled"]:
                sentence = f"The access of {linked['login']} was ended; only an org-admin can give it back."
                raise ResponderBotError("conflict", sentence)
            if linked is not None:
                raise ResponderBotError(
                    "conflict", f"The Slack id {slack_user} is linked to {linked['login']} already."
                )
            known = stored.newest_request(tx, team, slack_user)
            if known is not None and known["status"] == "pending" and known["expires_at"] > now:
                return _shown(known, now), False
            if stored.count_since(tx, team, slack_user, now - DAY_MS) >= MAX_A_DAY:
                sentence = f"You have asked {MAX_A_DAY} times today; speak with an org-admin, or ask again tomorrow."
                raise ResponderBotError("conflict", sentence)
            if stored.count_pending(tx, now) >= MAX_PENDING:
                sentence = f"{MAX_PENDING} requests wait for an admin already; ask again later."
                raise ResponderBotError("conflict", sentence)
            stored.prune_requests(tx, now - KEPT_MS)
            number = objects.next_id(tx)
            login = self._access.normalize_login(_login(name) or slack_user)
            stored.insert_request(tx, number, team, slack_user, name, login, now, now + DAY_MS)
            _record(tx, "created", number, caller.login, now)
            return _shown(_request(tx, number), now), True

        return await self._change(work)

    async def requests(self, caller: Caller) -> Sequence[AccessRequest]:
        """The newest requests, pending ones first. Raises ResponderBotError("forbidden")."""
        if not caller.may("actOnBehalf"):
            _require_admin(caller, "see requests for access")
        now = self._clock()
        rows = await self._database.read(lambda reads: stored.newest_requests(reads, MAX_LISTED))
        return [_shown(row, now) for row in rows]

    async def request_by_id(self, caller: Caller, request_id: str) -> AccessRequest:
        """Raises ResponderBotError: forbidden, not_found."""
        if not caller.may("actOnBehalf"):
            _require_admin(caller, "see requests for access")
        number = parse_id(request_id)
        return _shown(await self._database.read(lambda reads: _request(reads, number)), self._clock())

    async def approve(self, caller: Caller, request_id: str, wanted: ApproveAccessInput) -> AccessRequest:
        """Add a user for the one who asked, linked to them.

        Raises ResponderBotError: forbidden, not_found, conflict (decided or expired), exists (the login or the link),
        bad_request.
        """
        _require_admin(caller, "decide on a request for access")

        def work(tx: Transaction, now: int) -> AccessRequest:
            row = _pending(tx, request_id, now)
            login = self._access.new_login(row["login"] if wanted.login is None else wanted.login)
            own_ids = [link["slack_user"] for link in users.links_of(tx, caller.login)]
            if caller.login in (row["login"], login) or row["slack_user"] in own_ids:
                sentence = "This request names your own login; somebody else must decide on it."
                raise ResponderBotError("forbidden", sentence)
            # Nobody needs the key to work in Slack; an admin can make another.
            unknown_key = hash_key(secrets.token_urlsafe(KEY_BYTES))
            users.insert(tx, login, wanted.profile, wanted.clearance, unknown_key, now)
            users.link(tx, row["team"], row["slack_user"], login)
            stored.decide(tx, row["id"], "approved", login, wanted.profile, "", caller.login, now)
            _record(tx, "ended", row["id"], caller.login, now)
            return _shown(_request(tx, row["id"]), now)

        return await self._change(work)

    async def deny(self, caller: Caller, request_id: str, message: str) -> AccessRequest:
        """Raises ResponderBotError: forbidden, not_found, conflict (decided or expired)."""
        _require_admin(caller, "decide on a request for access")

        def work(tx: Transaction, now: int) -> AccessRequest:
            row = _pending(tx, request_id, now)
            stored.decide(tx, row["id"], "denied", row["login"], None, message, caller.login, now)
            _record(tx, "ended", row["id"], caller.login, now)
            return _shown(_request(tx, row["id"]), now)

        return await self._change(work)

    async def expire_forever(self) -> None:
        """End the requests on which nobody decides in time, each once, also with several cores."""
        while True:
            try:
                if due := await self._database.read(lambda reads: stored.due(reads, self._clock())):
                    await self._change(partial(_expire, numbers=due))
            except ResponderBotError as error:
                log.warning("requests_not_expired", reason=error.message)
            except Exception:
                log.exception("requests_not_expired")
            await asyncio.sleep(EXPIRE_EVERY_S)

    # --- users ------------------------------------------------------------------------------------------------------

    async def users(self, caller: Caller) -> Sequence[UserEntry]:
        """All users, for org-admins and the bot itself. Raises ResponderBotError("forbidden")."""
        if not caller.may("actOnBehalf"):
            _require_admin(caller, "see all users")
        return await self._database.read(self._entries)

    async def set_disabled(self, caller: Caller, name: str, disabled: bool) -> UserEntry:
        """Raises ResponderBotError: forbidden, not_found."""
        verb = "disable" if disabled else "enable"

        def work(tx: Transaction, _: int) -> UserEntry:
            login = self._changeable(tx, caller, name, f"{verb} a user")
            if login == caller.login:
                raise ResponderBotError("forbidden", f"You can't {verb} your own user; ask another admin.")
            users.set_disabled(tx, login, disabled)
            return next(entry for entry in self._entries(tx) if entry.login == login)

        return await self._change(work)

    async def new_key(self, caller: Caller, name: str) -> NewKey:
        """Replace a user's key. Raises ResponderBotError: forbidden, not_found.

        Never through the bot: its key would be worth that of the user, and Slack would have read it.
        """
        if caller.is_on_behalf:
            sentence = f"Keys don't pass through Slack; run `responder-bot user key {name}` where core runs."
            raise ResponderBotError("forbidden", sentence)
        key = secrets.token_urlsafe(KEY_BYTES)

        def work(tx: Transaction, _: int) -> NewKey:
            login = self._changeable(tx, caller, name, "make a new key")
            users.set_key(tx, login, hash_key(key), None)
            return NewKey(login=login, key=key)

        return await self._change(work)

    def _changeable(self, tx: Transaction, caller: Caller, name: str, what: str) -> str:
        """The login, if the caller may change that user: through the bot no other admin's and no program's."""
        _require_admin(caller, what)
        login = self._access.normalize_login(name)
        row = users.by_login(tx, login)
        if row is None:
            raise ResponderBotError("not_found", f"There is no user {login}.")
        is_protected = row["profile"] in (*PROGRAM_PROFILES, "org-admin") and login != caller.login
        if caller.is_on_behalf and is_protected:
            sentence = (
                f"{login} is a {row['profile']}, and can be changed on the command line or with your own key only."
            )
            raise ResponderBotError("forbidden", sentence)
        return login

    # --- groups -----------------------------------------------------------------------------------------------------

    async def groups(self) -> Sequence[Group]:
        """All groups that have members."""
        return await self._database.read(_groups)

    async def set_members(self, caller: Caller, name: str, logins: Sequence[str]) -> Group:
        """Let a group have these members. Raises ResponderBotError: forbidden, bad_request."""
        if caller.is_on_behalf or not caller.may("actOnBehalf"):
            _require_admin(caller, "change a group")

        def work(tx: Transaction, _: int) -> Group:
            members = sorted({require_person(tx, self._access.normalize_login(login)) for login in logins})
            stored.set_members(tx, _group(name), members)
            return Group(name=name, members=members)

        return await self._change(work)

    async def add_member(self, name: str, login: str) -> str:
        """Put a person into a group; returns the login. Raises ResponderBotError("bad_request")."""

        def work(tx: Transaction, _: int) -> str:
            member = require_person(tx, self._access.normalize_login(login))
            stored.add_member(tx, _group(name), member)
            return member

        return await self._change(work)

    async def remove_member(self, name: str, login: str) -> str:
        """Take a person out of a group; returns the login. Raises ResponderBotError("not_found")."""
        member = self._access.normalize_login(login)
        if not await self._change(lambda tx, _: stored.remove_member(tx, name, member)):
            raise ResponderBotError("not_found", f"{member} is not in the group {name}; `group list` shows who is.")
        return member

    def _entries(self, reads: Reads) -> list[UserEntry]:
        groups = _groups(reads)
        return [
            UserEntry(
                login=row["login"],
                profile=row["profile"],
                clearance=row["clearance"],
                disabled=bool(row["disabled"]),
                created_at=row["created_at"],
                slack_ids=[text.removeprefix(":") for text in (row["slack_ids"] or "").split()],
                groups=[group.name for group in groups if row["login"] in group.members],
            )
            for row in users.list_all(reads)
        ]

    async def _change(self, work: Callable[[Transaction, int], T]) -> T:
        now = self._clock()
        return await self._database.transaction(lambda tx: work(tx, now))


def _record(tx: Transaction, verb: str, number: int, user: str, now: int) -> None:
    """Record an event, which is how the bot learns of a request and of its end."""
    events.record(
        tx, number, at=now, type=f"access_request.{verb}", object_type="AccessRequest", root_id=number, user=user
    )


def _expire(tx: Transaction, now: int, *, numbers: Sequence[int]) -> None:
    for number in numbers:
        if stored.expire(tx, number):
            _record(tx, "ended", number, _request(tx, number)["login"], now)


def _require_admin(caller: Caller, what: str) -> None:
    # The profile and not manageUser, which one who acts through the bot lacks.
    if caller.profile != "org-admin":
        raise ResponderBotError("forbidden", f"You are not authorized to {what}, only an org-admin is.")


def _request(reads: Reads, number: int | None) -> Row:
    row = None if number is None else stored.request(reads, number)
    if row is None:
        raise ResponderBotError("not_found", "Request for access not found")
    return row


def _pending(reads: Reads, request_id: str, now: int) -> Row:
    row = _request(reads, parse_id(request_id))
    if row["expires_at"] <= now and row["status"] in ("pending", "expired"):
        raise ResponderBotError("conflict", "This request has expired; the person can ask again.")
    if row["status"] != "pending":
        sentence = f"This request was {row['status']} by {row['decided_by']} already."
        raise ResponderBotError("conflict", sentence)
    return row


def _shown(row: Row, now: int) -> AccessRequest:
    is_over = row["status"] == "pending" and row["expires_at"] <= now
    return AccessRequest(
        id=f"~{row['id']}",
        team=row["team"],
        slack_user=row["slack_user"],
        name=row["name"],
        login=row["login"],
        status="expired" if is_over else row["status"],
        profile=row["profile"],
        message=row["message"] or None,
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        decided_by=row["decided_by"],
        decided_at=row["decided_at"],
    )


def _login(name: str) -> str:
    """The first part of a login made of a person's name; `""` if none of it fits."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return "-".join(".".join(re.findall(r"[a-z0-9_-]+", plain)).split("--"))[:60].strip(".")


def _group(name: str) -> str:
    if not re.fullmatch(GROUP_NAME, name):
        sentence = f"{name[:64]!r} can't be a group; take a word of small letters, such as containment."
        raise ResponderBotError("bad_request", sentence)
    return name


def _groups(reads: Reads) -> list[Group]:
    found: dict[str, list[str]] = {}
    for row in stored.members(reads):
        found.setdefault(row["name"], []).append(row["login"])
    return [Group(name=name, members=members) for name, members in found.items()]
