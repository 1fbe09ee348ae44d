"""SQL for requests of people in Slack to get access, and for groups of users."""

import json
from collections.abc import Iterable

from core.common.database import Reads, Row, Transaction

_COLUMNS = "id, team, slack_user, name, login, status, profile, message, created_at, expires_at, decided_by, decided_at"


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
    return reads.row(f"SELECT {_COLUMNS} FROM access_request WHERE id = :id", {"id": number})


def newest_request(reads: Reads, team: str, slack_user: str) -> Row | None:
    sql = (
        f"SELECT {_COLUMNS} FROM access_request WHERE team = :team AND slack_user = :slack_user"
        " ORDER BY id DESC LIMIT 1"
    )
    return reads.row(sql, {"team": team, "slack_user": slack_user})


def count_pending(reads: Reads, now: int) -> int:
    sql = "SELECT count(*) AS total FROM access_request WHERE status = 'pending' AND expires_at > :now"
    row = reads.row(sql, {"now": now})
    return row["total"] if row else 0


def count_since(reads: Reads, team: str, slack_user: str, since: int) -> int:
    """How often this person has asked since then (ms)."""
    sql = (
        "SELECT count(*) AS total FROM access_request"
        " WHERE team = :team AND slack_user = :slack_user AND created_at > :since"
    )
    row = reads.row(sql, {"team": team, "slack_user": slack_user, "since": since})
    return row["total"] if row else 0


def due(reads: Reads, now: int) -> list[int]:
    """Pending requests that nobody has decided on in time."""
    sql = "SELECT id FROM access_request WHERE status = 'pending' AND expires_at <= :now"
    return [row["id"] for row in reads.rows(sql, {"now": now})]


def expire(tx: Transaction, number: int) -> int:
    """0 if it has been decided meanwhile."""
    sql = "UPDATE access_request SET status = 'expired' WHERE id = :id AND status = 'pending'"
    return tx.run(sql, {"id": number})


def newest_requests(reads: Reads, limit: int) -> list[Row]:
    """The newest requests, pending ones first."""
    sql = f"SELECT {_COLUMNS} FROM access_request ORDER BY status = 'pending' DESC, id DESC LIMIT :limit"
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


def add_member(tx: Transaction, group: str, login: str) -> int:
    sql = "INSERT INTO group_member (name, login) VALUES (:name, :login) ON CONFLICT DO NOTHING"
    return tx.run(sql, {"name": group, "login": login})


def remove_member(tx: Transaction, group: str, login: str) -> int:
    return tx.run("DELETE FROM group_member WHERE name = :name AND login = :login", {"name": group, "login": login})


def set_members(tx: Transaction, group: str, logins: Iterable[str]) -> None:
    """Let a group have these members and no others."""
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
