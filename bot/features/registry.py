"""All that people can do in Slack. To add a feature, add its module to `FEATURES`."""

from collections.abc import Mapping
from typing import TypeVar

from bot.features import audit, help, templates
from bot.features.alert_groups import handlers as alert_groups
from bot.features.alerts import assign, find, overflow
from bot.features.approvals import handlers as approvals
from bot.features.base import Command, Entry, Feature
from bot.features.bulks import handlers as bulks
from bot.features.cases import handlers as cases
from bot.features.command_text import instead_of_id, normalize, parse_id, wrong_usage
from bot.features.home import handlers as home
from bot.features.runs import clicks, command, form, listing
from bot.features.undos import handlers as undos

FEATURES: tuple[Feature, ...] = (
    form.FEATURE,
    find.FEATURE,
    listing.FEATURE,
    command.FEATURE,
    home.FEATURE,
    audit.FEATURE,
    assign.FEATURE,
    bulks.FEATURE,
    cases.FEATURE,
    templates.FEATURE,
    help.FEATURE,
    undos.FEATURE,
    overflow.FEATURE,
    approvals.FEATURE,
    clicks.FEATURE,
    alert_groups.FEATURE,
)

T = TypeVar("T")


def _merged(*tables: Mapping[str, T]) -> Mapping[str, T]:
    """One table of them all. Raises ValueError if two features claim the same id, so that imports fail."""
    merged: dict[str, T] = {}
    for table in tables:
        if duplicates := merged.keys() & table.keys():
            raise ValueError(f"claimed twice: {', '.join(sorted(duplicates))}")
        merged.update(table)
    return merged


COMMANDS: Mapping[str, Command] = _merged(*(f.commands for f in FEATURES))
ACTIONS: Mapping[str, Entry] = _merged(*(f.actions for f in FEATURES))
OPTIONS: Mapping[str, Entry] = _merged(*(f.options for f in FEATURES))
VIEWS: Mapping[str, Entry] = _merged(*(f.views for f in FEATURES))
SHORTCUTS: Mapping[str, Entry] = _merged(*(f.shortcuts for f in FEATURES))
EVENTS: Mapping[str, Entry] = _merged(*(f.events for f in FEATURES))


def command_for(text: str) -> tuple[Entry, str]:
    """The entry for the text of a slash command, and its `Context.text`.

    No text opens the run modal, an id alone shows what has it. Text with an unknown verb, or without what its verb
    needs, goes as a whole to `help`, which says what was probably meant.
    """
    normalized = normalize(text)
    verb, _, rest = normalized.partition(" ")
    if not verb:
        return COMMANDS["start"].entry, ""
    command = COMMANDS.get(help.SAME_AS.get(verb.lower(), verb.lower()))
    if command is None:
        return (COMMANDS["alert"].entry if parse_id(normalized) else help.UNKNOWN), normalized
    if not command.entry.is_public and wrong_usage(command.usage, rest, ""):
        return (find.WITHOUT_ID if instead_of_id(command.usage, rest)[0] else help.MISTYPED), normalized
    return command.entry, rest
