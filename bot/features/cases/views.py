"""Asks before a case is made, and which case template to use."""

from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import OPTION_LIMIT, code, context, foreign, foreign_plain, plain, section
from bot.clearance import RedactedView, tlp_name
from bot.features.runs.views import runs
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count, some_of
from core.models import CaseTemplate

MAX_TEMPLATES = 30
MAX_TASKS = 6
TITLE, ONE, MADE, INTO = "Make a case", "Make one case", "Case made", "Put into this case"
LEAVES = "The alert leaves the open alerts; no button takes it out of its case."


def becomes_case(view: RedactedView) -> list[str]:
    """What happens to this alert, who closed it, if somebody did, and why; mrkdwn."""
    about, closing = [runs.named(view)], view.subject.closed
    if closing is not None and view.is_open:
        about.append(f"It is {runs.closed_by(closing, view)}")
    return [*about, f"The case has its title and severity, and is yours. {LEAVES}"]


def goes_into(view: RedactedView, case: RedactedView) -> list[str]:
    """What happens to this alert, and who sees what of it then; mrkdwn."""
    alert, into = map(runs.named, (view, case))
    goes = f"It goes into the case {into}, which keeps its severity and is {tlp_name(case.subject.tlp)}."
    return [alert, goes, *shows_more([view], case.subject.tlp), LEAVES]


def shows_more(alerts: Sequence[RedactedView], tlp: int) -> list[str]:
    """What whoever may see a case with this TLP sees of those of its alerts that are above that; mrkdwn."""
    above = {view.subject.id: view.subject.tlp for view in alerts if view.subject.tlp > tlp}
    if not above:
        return []
    are, their = ("is", "its") if len(above) == 1 else ("are up to", "their")
    seen = f"{their} tags, and the observables that are not above {tlp_name(tlp)} themselves, with what ran on them"
    which = f"{some_of([*above], MAX_TASKS)} {are} {tlp_name(max(above.values()))}"
    return [f"⚠️ {which}: whoever may see the case then sees {seen}."]


def into_menu(alert_id: str, cases: Sequence[RedactedView], button: ButtonIds) -> list[Block]:
    """The open cases to choose from for the alert; nothing if there are none."""
    into = [(foreign_plain(f"{case.subject.id} {case.title()}", OPTION_LIMIT), case.subject.id) for case in cases]
    options = [{"text": plain(text), "value": button(Intent("into", alert_id, id_))} for text, id_ in into]
    menu = {"type": "static_select", "action_id": ids.INTO_CASE, "placeholder": plain("Or into an open case")}
    return [actions({**menu, "options": options})] if options else []


def case_button(case_id: str, button: ButtonIds) -> dict[str, Any]:
    """Shows the case in which alerts are to whoever presses it, as far as they may see it."""
    return button_element("Show case", ids.DETAILS, button(Intent("details", case_id)), of=case_id)


def made(text: str, case_id: str, button: ButtonIds) -> Message:
    """Says of what a case was made, and how others go into it, with the button that shows it."""
    more = f"To add another alert, press *{TITLE}* on the card of that alert."
    return Message(text, (section(text), context(more), actions(case_button(case_id, button))))


def template_picker(
    alert_id: str,
    what: Sequence[Block],
    templates: Sequence[CaseTemplate],
    *,
    own: str,
    button: ButtonIds,
    command: str,
) -> Message:
    """The alert and a button for each template, with its tasks; `own` is the template that the alert names."""
    blocks: list[Block] = [*what]
    for number, template in enumerate(templates[:MAX_TEMPLATES]):
        use = button_element(
            "Use", ids.CASE_TEMPLATE, button(Intent("case_with", alert_id, template.name)), of=str(number)
        )
        blocks.append(section(_about(template), accessory=use))
    if len(templates) > MAX_TEMPLATES:
        left = count(len(templates) - MAX_TEMPLATES, "more template")
        blocks.append(context(f"And {left}: type {code(f'{command} case {alert_id} NAME', 100)}."))
    label = foreign_plain(f"With {own}, as the alert says", 75) if own else "Without a template"
    none = button_element(label, ids.CASE_TEMPLATE, button(Intent("case_with", alert_id)), of=str(MAX_TEMPLATES))
    blocks.append(actions(none))
    return Message(f"Which template for the case of {alert_id}?", tuple(blocks))


def _about(template: CaseTemplate) -> str:
    name = foreign(template.display_name or template.name, 120)
    titles = [foreign(task.title, 60) for task in template.tasks]
    tasks = f"{count(len(template.tasks), 'task')}: {some_of(titles, MAX_TASKS)}" if titles else "no tasks"
    return f"*{name}*\n{tasks}"
