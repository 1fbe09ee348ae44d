"""Asks which case template to use."""

from collections.abc import Sequence

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import code, context, foreign, foreign_plain, section
from bot.clearance import RedactedView, Subject
from bot.features.runs.views import questions
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count, some_of
from core.models import CaseTemplate

MAX_TEMPLATES = 30
MAX_TASKS = 6


def template_picker(
    subject: Subject, templates: Sequence[CaseTemplate], *, own: str, clearance: int, button: ButtonIds, command: str
) -> Message:
    """The alert and a button for each template, with its tasks; `own` is the template that the alert names."""
    blocks: list[Block] = [section(f"Make a case of\n{questions.subject_line(RedactedView(subject, clearance))}")]
    for number, template in enumerate(templates[:MAX_TEMPLATES]):
        use = button_element(
            "Use", ids.CASE_TEMPLATE, button(Intent("case_with", subject.id, template.name)), of=str(number)
        )
        blocks.append(section(_about(template), accessory=use))
    if len(templates) > MAX_TEMPLATES:
        left = count(len(templates) - MAX_TEMPLATES, "more template")
        blocks.append(context(f"And {left}: type {code(f'{command} case {subject.id} NAME', 100)}."))
    label = foreign_plain(f"With {own}, as the alert says", 75) if own else "Without a template"
    none = button_element(label, ids.CASE_TEMPLATE, button(Intent("case_with", subject.id)), of=str(MAX_TEMPLATES))
    blocks.append(actions(none))
    return Message(f"Which template for the case of {subject.id}?", tuple(blocks))


def _about(template: CaseTemplate) -> str:
    name = foreign(template.display_name or template.name, 120)
    titles = [foreign(task.title, 60) for task in template.tasks]
    tasks = f"{count(len(template.tasks), 'task')}: {some_of(titles, MAX_TASKS)}" if titles else "no tasks"
    return f"*{name}*\n{tasks}"
