"""The objects of a run: those that the person may see, each with the responders for it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.block_kit.text import count
from bot.clearance import RedactedView, Subject
from bot.features import subjects
from bot.features.authorization import own_clearance
from bot.features.base import Context
from core.models import Document, OfferedResponder, RunTarget

MOST = 100  # of one request to core


@dataclass(frozen=True)
class Target:
    """An object that the person may see, with the responders for it, also those that can't run and why."""

    view: RedactedView
    offered: Sequence[OfferedResponder] = ()

    def responder(self, responder_id: str) -> OfferedResponder | None:
        """The responder with this id or name; None if the object isn't one for it."""
        return next((responder for responder in self.offered if responder_id in (responder.id, responder.name)), None)


def run_target(subject: Subject) -> RunTarget:
    """The object as a request names it."""
    return RunTarget(object_type=subject.kind, object_id=subject.id)


async def load(context: Context, object_ids: Sequence[str]) -> Sequence[Target]:
    """Read the objects with these ids; of several only those that this person may see.

    Raises ResponderBotError: not_found, forbidden, if there is one id.
    """
    if len(object_ids) != 1:
        return list((await find_targets(context, object_ids)).values())
    subject, offered = await subjects.offered(context.core, object_ids[0])
    return [Target(subjects.require_visible(context, subject), offered)]


async def find_targets(context: Context, object_ids: Sequence[str], *, responders: bool = True) -> Mapping[str, Target]:
    """The objects with these ids, in this order; without those that aren't there, or that this person may not see."""
    clearance, targets = own_clearance(context), dict[str, Target]()
    async for response in context.core.documents_in_pages(object_ids, responders=responders):
        for document in response.documents:
            for object_id in within(document, object_ids):
                subject = Subject.in_document(document, object_id)
                view = RedactedView(subject, clearance) if subject is not None else None
                if view is not None and view.is_open and (not responders or object_id in document.responders):
                    targets[object_id] = Target(view, document.responders.get(object_id, ()))
    return {object_id: targets[object_id] for object_id in object_ids if object_id in targets}


def within(document: Document, object_ids: Sequence[str]) -> Sequence[str]:
    """Those of these ids that the document may have."""
    if document.alert is None:
        return object_ids
    known = {document.id, *(artifact.id for artifact in document.alert.artifacts)}
    return [object_id for object_id in object_ids if object_id in known]


def offered_on(targets: Iterable[Target]) -> Sequence[OfferedResponder]:
    """The responders for these objects, each as it is where it can run, if it can anywhere."""
    every = sorted(
        (responder for target in targets for responder in target.offered), key=lambda responder: responder.can_run
    )
    return list({responder.id: responder for responder in every}.values())


def on_so_many(visible: int, total: int) -> str:
    """Such as `3 of 5 objects, those that you may see`."""
    return count(total, "object") if visible == total else f"{visible} of {total} objects, those that you may see"
