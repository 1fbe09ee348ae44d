"""Runs that a search found, with what is shown beside them: what they ran on, the policy, the titles, the card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.block_kit import names
from bot.clearance import Subject
from bot.features import subjects
from bot.features.approvals import views as approvals
from bot.features.base import Context
from bot.features.home.views import HomeRun
from bot.features.runs.views import undo_state
from core.models import Action, BulkCounts, Person, Policy, SlackUsers

MANY = 500
MOST_DECIDERS = 10  # that core names (core/docs/http-interface.md); beyond them it may be anybody


@dataclass(frozen=True)
class FoundRuns:
    """What actions ran on, as core shows it in one answer, or in a few where that is much."""

    links: Mapping[str, str]  # by root, to its card
    subjects: Mapping[str, Subject]  # by action
    policies: Mapping[str, Policy]  # by responder
    titled: Mapping[str, Action]  # by id: the same with the titles of responder and inputs
    deciders: Mapping[str, Sequence[SlackUsers]]  # by action that waits: who may decide, at most MOST_DECIDERS
    bulks: Mapping[str, BulkCounts]

    @staticmethod
    async def of(context: Context, actions: Sequence[Action]) -> "FoundRuns":
        """Read the documents of these actions."""
        ids = {one: None for action in actions for one in (action.id, action.bulk) if one}
        pages = [page async for page in context.core.documents_in_pages(ids)]
        documents = [document for page in pages for document in page.documents]
        bulks = {bulk.id: bulk for page in pages for bulk in page.bulks}
        by_action = {action.id: document for document in documents for action in document.actions}
        subjects_by_action: dict[str, Subject] = {}
        policies: dict[str, Policy] = {}
        for action in actions:
            document = by_action.get(action.id)
            subject = Subject.in_document(document, action.object_id) if document else None
            subjects_by_action[action.id] = subject or Subject.unknown(action)
            policies.update(document.policies if document else {})
        titled = {action.id: action for document in documents for action in document.actions}
        deciders = {id_: may_decide for document in documents for id_, may_decide in document.may_decide.items()}
        addresses = await subjects.card_links(
            context, list({subject.root_id for subject in subjects_by_action.values()})
        )
        return FoundRuns(addresses, subjects_by_action, policies, titled, deciders, bulks)

    def run(self, action: Action) -> HomeRun:
        """The action with what is shown beside it."""
        subject, policy = self.subjects[action.id], self.policies.get(action.responder_name)
        titled = names.titled_as(action, self.titled.get(action.id))
        return HomeRun(titled, subject, policy, self.links[subject.root_id], self.bulks.get(action.bulk or ""))

    def to_decide(self, person: Person, actions: Sequence[Action]) -> list[HomeRun]:
        """Those of these that this person may approve or deny, or whose later end.

        The most severe come first, and of these what has to be answered first.
        """
        able: list[tuple[int, int, HomeRun]] = []
        for run, later in ((self.run(action), undo_state.later_end(action)) for action in actions):
            approval, deciders = (later or run.action).approval, self.deciders.get(run.action.id, ())
            is_named = len(deciders) >= MOST_DECIDERS or person.login in {one.login for one in deciders}
            if approval is not None and is_named and approvals.may_decide(run.action, person, run.subject, later):
                able.append((-run.subject.severity, approval.expires_at, run))
        return [run for *_, run in sorted(able, key=lambda one: (*one[:2], one[2].action.number))]
