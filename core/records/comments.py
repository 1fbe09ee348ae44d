"""Comments on alerts and cases."""

from typing import Literal

from core.authorization import Caller
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import Comment, CommentInput, Permission, parse_id
from core.records import alerts, cases, clearance
from core.records.writes import Records, made
from core.store import events, objects

KIND = "comment"


class Comments(Records):
    """Comments as people and clients read and change them."""

    async def add(self, caller: Caller, parent_id: str, request: CommentInput, *, kind: str) -> Comment:
        """Comment on an alert or a case (`kind`). Raises ResponderBotError("not_found")."""
        resolve = alerts.resolve_alert if kind == "alert" else cases.resolve_case
        parent = await self._database.read(lambda reads: resolve(reads, parent_id))

        def work(tx: Transaction, now: int) -> Comment:
            clearance.require(tx, caller, parent, "create comment")
            number = objects.next_id(tx)
            comment = Comment(**made(number, caller.login, now), message=request.message)
            objects.insert(tx, number, KIND, comment.to_json(), parent_id=parent)
            _record(tx, "created", number, parent, caller, now)
            return comment

        return await self._change(work)

    async def update(self, caller: Caller, comment_id: str, request: CommentInput) -> Comment:
        """Change a comment's text. Raises ResponderBotError: not_found, forbidden for all but its author."""

        def work(tx: Transaction, now: int) -> Comment:
            row, comment = _writable(tx, caller, comment_id, "change comment")
            if comment.created_by != caller.login:
                raise _not_the_author(comment)
            changed = comment.model_copy(
                update={"message": request.message, "is_edited": True, "updated_by": caller.login, "updated_at": now}
            )
            objects.update(tx, row["id"], changed.to_json())
            _record(tx, "updated", row["id"], row["parent_id"], caller, now)
            return changed

        return await self._change(work)

    async def delete(self, caller: Caller, comment_id: str) -> Comment:
        """Remove a comment for good.

        Raises ResponderBotError: not_found, forbidden (neither its author nor an org-admin).
        """

        def work(tx: Transaction, now: int) -> Comment:
            row, comment = _writable(tx, caller, comment_id, "delete comment")
            if comment.created_by != caller.login and caller.profile != "org-admin":
                raise _not_the_author(comment)
            objects.delete(tx, row["id"])
            _record(tx, "deleted", row["id"], row["parent_id"], caller, now)
            return comment

        return await self._change(work)

    async def get_json(self, comment_id: str) -> str:
        """A comment's JSON. Raises ResponderBotError("not_found")."""
        number = parse_id(comment_id)
        return str((await self._database.read(lambda reads: objects.require(reads, KIND, number)))["doc"])


def _writable(reads: Reads, caller: Caller, comment_id: str, purpose: str) -> tuple[Row, Comment]:
    """The comment, if the caller may change its alert or case. Raises ResponderBotError: not_found, forbidden."""
    row = objects.require(reads, KIND, parse_id(comment_id))
    kind: Literal["alert", "case"] = "alert" if objects.exists(reads, "alert", row["parent_id"]) else "case"
    permission: Permission = "manageAlert" if kind == "alert" else "manageCase"
    caller.require(permission, purpose)
    clearance.require(reads, caller, row["id"], purpose)
    return row, Comment.model_validate(objects.parsed(row["doc"]))


def _not_the_author(comment: Comment) -> ResponderBotError:
    sentence = f"The comment is by {comment.created_by}, and only its author may change it; write one of your own."
    return ResponderBotError("forbidden", sentence)


def _record(tx: Transaction, what: str, number: int, root: int, caller: Caller, now: int) -> None:
    user, kind = caller.login, f"{KIND}.{what}"
    events.record(tx, number, at=now, type=kind, object_type="Comment", root_id=root, user=user)
