"""SQL for users, their links to Slack and their groups, and requests for access."""

import json
from collections.abc import Iterable

from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError

_USER = '"user".login AS login, profile, clearance, disabled, created_at'
_REQUEST = "id, team, slack_user, name, login, status, profile, message, created_at, expires_at, decided_by, decided_at"


# --- users ----------------------------------------------------------------------------------------------------------


def insert(tx: Transaction, login: str, profile: str, clearance: int, key_hash: str, created_at: int) -> None:
    """Insert a user. Raises ResponderBotError("exists") if the login is taken."""
    inserted = tx.run(
        'INSERT INTO "user" (login, profile, clearance, key_hash, disabled, created_at)'
        " VALUES (:login, :profile, :clearance, :key_hash, 0, :created_at) ON CONFLICT DO NOTHING",
        {"login": login, "profile": profile, "clearance": clearance, "key_hash": key_hash, "created_at": created_at},
    )
    if not inserted:
        raise ResponderBotError(
            "exists", f"There is a user {login} already; `responder-bot user key {login}` gives a new key."
        )


def by_key_hash(reads: Reads, key_hash: str, now: int) -> Row | None:
    """The user with this key, or with it as the old key that still works."""
    row = reads.row(f'SELECT {_USER}, key_hash FROM "user" WHERE key_hash = :key_hash', {"key_hash": key_hash})
    return row or reads.row(
        f'SELECT {_USER}, old_key_hash AS key_hash FROM "user" WHERE old_key_hash = :key_hash AND old_key_until > :now',
        {"key_hash": key_hash, "now": now},
    )


def by_login(reads: Reads, login: str) -> Row | None:
    return reads.row(f'SELECT {_USER}, key_hash FROM "user" WHERE login = :login', {"login": login})


def users(reads: Reads) -> list[Row]:
    """All users, by login."""
    return reads.rows(f'SELECT {_USER} FROM "user" ORDER BY login')


def set_disabled(tx: Transaction, login: str, disabled: bool) -> int:
    return tx.run('UPDATE "user" SET disabled = :disabled WHERE login = :login', {"login": login, "disabled": disabled})


def set_profile(tx: Transaction, login: str, profile: str) -> int:
    return tx.run('UPDATE "user" SET profile = :profile WHERE login = :login', {"login": login, "profile": profile})


def set_clearance(tx: Transaction, login: str, clearance: int) -> int:
    values = {"login": login, "clearance": clearance}
    return tx.run('UPDATE "user" SET clearance = :clearance WHERE login = :login', values)


def set_key(tx: Transaction, login: str, key_hash: str, old_until: int | None) -> int:
    """Replace a key; the old one works until `old_until`, or not at all."""
    kept = "CASE WHEN CAST(:until AS BIGINT) IS NULL THEN NULL ELSE key_hash END"
    return tx.run(
        f'UPDATE "user" SET old_key_hash = {kept}, old_key_until = :until, key_hash = :key_hash WHERE login = :login',
        {"login": login, "key_hash": key_hash, "until": old_until},
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
    tx.run(
        "INSERT INTO slack_link (team, slack_user, login) VALUES (:team, :slack_user, :login)",
        {"team": team, "slack_user": slack_user, "login": login},
    )


def unlink(tx: Transaction, login: str) -> int:
    return tx.run("DELETE FROM slack_link WHERE login = :login", {"login": login})


def links(reads: Reads) -> list[Row]:
    """`login, team, slack_user, disabled, clearance` of all linked users; a team that isn't known yet is `""`."""
    return reads.rows(
        'SELECT login, team, slack_user, disabled, clearance FROM slack_link JOIN "user" USING (login)'
        " ORDER BY team, slack_user"
    )


def links_of(reads: Reads, login: str) -> list[Row]:
    return reads.rows("SELECT team, slack_user FROM slack_link WHERE login = :login", {"login": login})


def by_slack(reads: Reads, team: str, slack_user: str) -> Row | None:
    """The user linked to a Slack person. A link whose team isn't known yet has the team `""`."""
    return reads.row(
        f'SELECT {_USER}, slack_link.team AS team FROM slack_link JOIN "user" USING (login)'
        " WHERE slack_user = :slack_user AND team = :team",
        {"slack_user": slack_user, "team": team},
    )


# --- user groups ----------------------------------------------------------------------------------------------------


def add_member(tx: Transaction, group: str, login: str) -> int:
    sql = "INSERT INTO group_member (name, login) VALUES (:name, :login) ON CONFLICT DO NOTHING"
    return tx.run(sql, {"name": group, "login": login})


def remove_member(tx: Transaction, group: str, login: str) -> int:
    return tx.run("DELETE FROM group_member WHERE name = :name AND login = :login", {"name": group, "login": login})


def set_members(tx: Transaction, group: str, logins: Iterable[str]) -> None:
    """Replace the members of a group."""
    values = {"name": group, "logins": json.dumps(list(logins))}
    tx.run(
        "DELETE FROM group_member WHERE name = :name AND login NOT IN (SELECT value FROM json_each(:logins))", values
    )
    tx.run(
        "INSERT INTO group_member (name, login) SELECT :name, value FROM json_each(:logins) WHERE TRUE"
        " ON CONFLICT DO NOTHING",
        values,
    )


def members_of(reads: Reads, group: str) -> list[str]:
    """The logins in a group; none if there is no such group."""
    return [row["login"] for row in reads.rows("SELECT login FROM group_member WHERE name = :name", {"name": group})]


def members(reads: Reads) -> list[Row]:
    """`name, login` of all groups, sorted."""
    return reads.rows("SELECT name, login FROM group_member ORDER BY name, login")


# --- requests for access --------------------------------------------------------------------------------------------


def insert_request(
    tx: Transaction, number: int, team: str, slack_user: str, name: str, login: str, now: int, expires_at: int
) -> None:
    tx.run(
        "INSERT INTO access_request (id, team, slack_user, name, login, status, created_at, expires_at)"
        " VALUES (:id, :team, :slack_user, :name, :login, 'pending', :now, :expires_at)",
        {
            **{"id": number, "team": team, "slack_user": slack_user, "name": name, "login": login},
            **{"now": now, "expires_at": expires_at},
        },
    )


def request(reads: Reads, number: int) -> Row | None:
    return reads.row(f"SELECT {_REQUEST} FROM access_request WHERE id = :id", {"id": number})


def newest_request(reads: Reads, team: str, slack_user: str) -> Row | None:
    sql = (
        f"SELECT {_REQUEST} FROM access_request WHERE team = :team AND slack_user = :slack_user"
        " ORDER BY id DESC LIMIT 1"
    )
    return reads.row(sql, {"team": team, "slack_user": slack_user})


def count_pending(reads: Reads, now: int) -> int:
    sql = "SELECT count(*) AS total FROM access_request WHERE status = 'pending' AND expires_at > :now"
    row = reads.row(sql, {"now": now})
    return row["total"] if row else 0


def count_since(reads: Reads, team: str, slack_user: str, since: int) -> int:
    """The number of this person's requests since then (ms)."""
    sql = (
        "SELECT count(*) AS total FROM access_request"
        " WHERE team = :team AND slack_user = :slack_user AND created_at > :since"
    )
    row = reads.row(sql, {"team": team, "slack_user": slack_user, "since": since})
    return row["total"] if row else 0


def due(reads: Reads, now: int) -> list[int]:
    """Pending requests whose time is over."""
    sql = "SELECT id FROM access_request WHERE status = 'pending' AND expires_at <= :now"
    return [row["id"] for row in reads.rows(sql, {"now": now})]


def expire(tx: Transaction, number: int) -> int:
    """Expire a pending request; 0 if somebody has decided on it."""
    sql = "UPDATE access_request SET status = 'expired' WHERE id = :id AND status = 'pending'"
    return tx.run(sql, {"id": number})


def newest_requests(reads: Reads, limit: int) -> list[Row]:
    """The newest requests, pending ones first."""
    sql = f"SELECT {_REQUEST} FROM access_request ORDER BY status = 'pending' DESC, id DESC LIMIT :limit"
    return reads.rows(sql, {"limit": limit})


def decide(
    tx: Transaction, number: int, status: str, login: str, profile: str | None, message: str, by: str, now: int
) -> None:
    tx.run(
        "UPDATE access_request SET status = :status, login = :login, profile = :profile, message = :message,"
        " decided_by = :by, decided_at = :now WHERE id = :id",
        {
            **{"id": number, "status": status, "login": login, "profile": profile, "message": message},
            **{"by": by, "now": now},
        },
    )


def prune_requests(tx: Transaction, before: int) -> int:
    return tx.run("DELETE FROM access_request WHERE expires_at < :before", {"before": before})
