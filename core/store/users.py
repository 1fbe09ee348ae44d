"""SQL for users and the Slack people linked to them."""

from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError

_COLUMNS = '"user".login AS login, profile, clearance, disabled, created_at'


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
    row = reads.row(f'SELECT {_COLUMNS}, key_hash FROM "user" WHERE key_hash = :key_hash', {"key_hash": key_hash})
    return row or reads.row(
        f'SELECT {_COLUMNS}, old_key_hash AS key_hash FROM "user"'
        " WHERE old_key_hash = :key_hash AND old_key_until > :now",
        {"key_hash": key_hash, "now": now},
    )


def by_login(reads: Reads, login: str) -> Row | None:
    return reads.row(f'SELECT {_COLUMNS}, key_hash FROM "user" WHERE login = :login', {"login": login})


def list_all(reads: Reads) -> list[Row]:
    """All users, each with its `slack_ids` (`team:user`, separated by blanks)."""
    ids: dict[str, list[str]] = {}
    for row in reads.rows("SELECT login, team, slack_user FROM slack_link ORDER BY team, slack_user"):
        ids.setdefault(row["login"], []).append(f"{row['team']}:{row['slack_user']}")
    users = reads.rows(f'SELECT {_COLUMNS} FROM "user" ORDER BY login')
    return [{**dict(row), "slack_ids": " ".join(ids.get(row["login"], ()))} for row in users]


def set_disabled(tx: Transaction, login: str, disabled: bool) -> int:
    return tx.run('UPDATE "user" SET disabled = :disabled WHERE login = :login', {"login": login, "disabled": disabled})


def set_profile(tx: Transaction, login: str, profile: str) -> int:
    return tx.run('UPDATE "user" SET profile = :profile WHERE login = :login', {"login": login, "profile": profile})


def set_clearance(tx: Transaction, login: str, clearance: int) -> int:
    values = {"login": login, "clearance": clearance}
    return tx.run('UPDATE "user" SET clearance = :clearance WHERE login = :login', values)


def set_key(tx: Transaction, login: str, key_hash: str, old_until: int | None) -> int:
    """Replace a key; the old one works until `old_until`, or from now on no more."""
    kept = "CASE WHEN CAST(:until AS BIGINT) IS NULL THEN NULL ELSE key_hash END"
    return tx.run(
        f'UPDATE "user" SET old_key_hash = {kept}, old_key_until = :until, key_hash = :key_hash WHERE login = :login',
        {"login": login, "key_hash": key_hash, "until": old_until},
    )


def link(tx: Transaction, team: str, slack_user: str, login: str) -> None:
    """Link a Slack person. Raises ResponderBotError("exists") if already linked, with a team or without."""
    taken = tx.row(
        "SELECT login FROM slack_link WHERE slack_user = :slack_user AND (team = :team OR team = '' OR :team = '')",
        {"team": team, "slack_user": slack_user},
    )
    if taken is not None:
        raise ResponderBotError(
            "exists",
            f"The Slack id {slack_user} is linked to {taken['login']} already;"
            f" `responder-bot user unlink {taken['login']}` first.",
        )
    tx.run(
        "INSERT INTO slack_link (team, slack_user, login) VALUES (:team, :slack_user, :login)",
        {"team": team, "slack_user": slack_user, "login": login},
    )


def unlink(tx: Transaction, login: str) -> int:
    return tx.run("DELETE FROM slack_link WHERE login = :login", {"login": login})


def links_of(reads: Reads, login: str) -> list[Row]:
    return reads.rows("SELECT team, slack_user FROM slack_link WHERE login = :login", {"login": login})


def by_slack(reads: Reads, team: str, slack_user: str) -> Row | None:
    """The user linked to a Slack person. A link whose team isn't known yet has the team `""`."""
    return reads.row(
        f'SELECT {_COLUMNS}, slack_link.team AS team FROM slack_link JOIN "user" USING (login)'
        " WHERE slack_user = :slack_user AND team = :team",
        {"slack_user": slack_user, "team": team},
    )
