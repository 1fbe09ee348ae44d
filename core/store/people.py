"""SQL for users, their keys, links to Slack and groups. Of keys only hashes are stored."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError

_USER = '"user".login AS login, profile, clearance, disabled, created_at'
DEFAULT_KEY = "default"
REPLACED_KEY = "replaced"
_KEY = "login, name, prefix, created_at, expires_at, last_used_day, clearance, addresses"
_USER_OF_KEY = (
    '"user".login AS login, profile, "user".clearance AS clearance, disabled, hash, name, prefix, expires_at,'
    " last_used_day, api_key.clearance AS key_clearance, addresses"
)


# --- users ----------------------------------------------------------------------------------------------------------


def insert(tx: Transaction, login: str, profile: str, clearance: int, created_at: int) -> None:
    """Insert a user. Raises ResponderBotError("exists") if the login is taken."""
    values = {"login": login, "profile": profile, "clearance": clearance, "disabled": 0, "created_at": created_at}
    if not tx.insert("user", values, otherwise="DO NOTHING"):
        raise ResponderBotError(
            "exists", f"There is a user {login} already; `responder-bot user key {login}` gives a new key."
        )


def by_login(reads: Reads, login: str) -> Row | None:
    return reads.row(f'SELECT {_USER} FROM "user" WHERE login = :login', {"login": login})


def users(reads: Reads) -> list[Row]:
    return reads.rows(f'SELECT {_USER} FROM "user" ORDER BY login')


def set_user(tx: Transaction, login: str, column: str, value: str | int) -> None:
    """Store another `profile` or `clearance`, or whether a user is `disabled`."""
    tx.run(f'UPDATE "user" SET {column} = :value WHERE login = :login', {"login": login, "value": value})


def set_decided(tx: Transaction, login: str, now: int) -> None:
    """Note when a user last approved or denied something."""
    tx.run(
        'UPDATE "user" SET decided_at = :now WHERE login = :login AND decided_at <> :now', {"login": login, "now": now}
    )


_LINKED = 'EXISTS (SELECT 1 FROM slack_link WHERE slack_link.login = "user".login)'
ABLE_TO_DECIDE = (
    'SELECT login, team, slack_user FROM (SELECT login, decided_at FROM "user"'
    " WHERE disabled = 0 AND profile IN (SELECT value FROM json_each(:profiles))"
    f" AND CASE WHEN {_LINKED} THEN clearance >= :clearance ELSE :in_slack = 0 END"
    " AND (:is_anybody = 1 OR login IN (SELECT value FROM json_each(:named))"
    " OR login IN (SELECT login FROM group_member WHERE '@' || name IN (SELECT value FROM json_each(:named)))"
    " OR profile IN (SELECT value FROM json_each(:always)))"
    " AND login NOT IN (SELECT value FROM json_each(:but))"
    " ORDER BY decided_at DESC, login DESC LIMIT :limit) AS able LEFT JOIN slack_link USING (login)"
    " ORDER BY decided_at DESC, login DESC"
)


def able_to_decide(
    reads: Reads,
    *,
    named: Sequence[str] | None,
    profiles: Sequence[str],
    always: Sequence[str],
    but: Iterable[str],
    clearance: int,
    limit: int,
    in_slack: bool,
) -> list[Row]:
    """The users with access and these profiles who have at least this clearance in Slack: those who decided last first.

    Whoever is not linked uses a key, for which the clearance doesn't count; `in_slack` leaves them out. `named` are
    logins, and groups such as `@containment`; None names everybody. Whoever has a profile of `always` need not be
    named. Nobody in `but` is returned. `login, team, slack_user` for each link, of at most `limit` users.
    """
    return reads.rows(
        ABLE_TO_DECIDE,
        {
            "clearance": clearance,
            "profiles": json.dumps(profiles),
            "is_anybody": int(named is None),
            "named": json.dumps(named or ()),
            "always": json.dumps(always),
            "but": json.dumps(list(but)),
            "limit": limit,
            "in_slack": int(in_slack),
        },
    )


def link(tx: Transaction, team: str, slack_user: str, login: str) -> None:
    """Link a Slack person. Raises ResponderBotError("exists") if already linked, with a team or without."""
    linked = tx.row(
        "SELECT login FROM slack_link WHERE slack_user = :slack_user AND (team = :team OR team = '' OR :team = '')",
        {"team": team, "slack_user": slack_user},
    )
    if linked is not None:
        raise ResponderBotError(
            "exists",
            f"The Slack id {slack_user} is linked to {linked['login']} already;"
            f" `responder-bot user unlink {linked['login']}` first.",
        )
    tx.insert("slack_link", {"team": team, "slack_user": slack_user, "login": login})


def unlink(tx: Transaction, login: str) -> int:
    return tx.run("DELETE FROM slack_link WHERE login = :login", {"login": login})


def links(reads: Reads) -> list[Row]:
    """`login, team, slack_user` of all links; a team that isn't known yet is `""`."""
    return reads.rows("SELECT login, team, slack_user FROM slack_link ORDER BY team, slack_user")


def links_of(reads: Reads, login: str) -> list[Row]:
    return reads.rows("SELECT team, slack_user FROM slack_link WHERE login = :login", {"login": login})


def by_slack(reads: Reads, team: str, slack_user: str) -> Row | None:
    """The user linked to a Slack person. A link whose team isn't known yet has the team `""`."""
    return reads.row(
        f'SELECT {_USER}, slack_link.team AS team FROM slack_link JOIN "user" USING (login)'
        " WHERE slack_user = :slack_user AND team = :team",
        {"slack_user": slack_user, "team": team},
    )


def makers(reads: Reads, owner: str, key: str) -> set[str]:
    """Who made this key of its owner, over however many keys; nobody if the command line did."""
    row = reads.row("SELECT made_by FROM api_key WHERE login = :owner AND name = :key", {"owner": owner, "key": key})
    return set() if row is None else {*json.loads(row["made_by"])}


def delete_user(tx: Transaction, login: str) -> None:
    """Delete a user with keys and links."""
    for table in ("api_key", "slack_link", '"user"'):
        tx.run(f"DELETE FROM {table} WHERE login = :login", {"login": login})


# --- keys -----------------------------------------------------------------------------------------------------------


def insert_key(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Add a key: `hash, login, name, prefix, created_at`, if it has them `expires_at, clearance, addresses, made_by`.

    Raises ResponderBotError("exists") if the user has one with this name.
    """
    if not tx.insert("api_key", {"addresses": "[]", **values}, otherwise="DO NOTHING"):
        name, login = values["name"], values["login"]
        sentence = f"{login} has a key {name} already; `responder-bot key revoke {login} {name}` first."
        raise ResponderBotError("exists", sentence)


def by_key_hash(reads: Reads, hash_: str) -> Row | None:
    return reads.row(
        f'SELECT {_USER_OF_KEY} FROM api_key JOIN "user" USING (login) WHERE hash = :hash', {"hash": hash_}
    )


def keys_of(reads: Reads, login: str) -> list[Row]:
    """The keys of a user, by name."""
    return reads.rows(f"SELECT {_KEY} FROM api_key WHERE login = :login ORDER BY name", {"login": login})


def keys_unused_since(reads: Reads, day: int) -> list[Row]:
    """Keys of people and programs with access that were made and last used before that day, by login and name."""
    return reads.rows(
        'SELECT login, name FROM api_key JOIN "user" USING (login)'
        " WHERE coalesce(last_used_day, api_key.created_at) < :day AND disabled = 0 ORDER BY login, name",
        {"day": day},
    )


def delete_key(tx: Transaction, login: str, name: str) -> int:
    return tx.run("DELETE FROM api_key WHERE login = :login AND name = :name", {"login": login, "name": name})


def keep_replaced_key(tx: Transaction, login: str, until: int) -> None:
    """Let the default key work until then (ms) under another name, in place of the one that was replaced before."""
    delete_key(tx, login, REPLACED_KEY)
    tx.run(
        "UPDATE api_key SET name = :after, expires_at = :until WHERE login = :login AND name = :name",
        {"login": login, "name": DEFAULT_KEY, "after": REPLACED_KEY, "until": until},
    )


def set_keys_used(tx: Transaction, days: Mapping[str, int]) -> None:
    """Note the day (ms) of the last use of keys, by hash."""
    values = [{"hash": hash_, "day": day} for hash_, day in days.items()]
    tx.run_all("UPDATE api_key SET last_used_day = :day WHERE hash = :hash", values)


def addresses_of_key(row: Row) -> Sequence[str]:
    """The networks that a key may come from; none for any."""
    networks: list[str] = json.loads(row["addresses"])
    return networks


# --- user groups ----------------------------------------------------------------------------------------------------


def set_members(tx: Transaction, group: str, logins: Iterable[str]) -> None:
    tx.run("DELETE FROM group_member WHERE name = :name", {"name": group})
    tx.insert("group_member", *({"name": group, "login": login} for login in logins))


def members_of(reads: Reads, group: str) -> list[str]:
    """The logins in a group; none if there is no such group."""
    return reads.column("SELECT login FROM group_member WHERE name = :name", {"name": group})


def members(reads: Reads) -> list[Row]:
    """`name, login` of all groups, sorted."""
    return reads.rows("SELECT name, login FROM group_member ORDER BY name, login")
