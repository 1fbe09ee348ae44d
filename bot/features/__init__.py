"""What people can do in Slack. A new feature is one file here and one line in `FEATURES`."""

from collections.abc import Mapping
from typing import TypeVar

from bot.cards import ids
from bot.features import actions, alert, decide, doctor, help, home, list, menu, more, run, start, template, watch
from bot.features.base import Command, Entry, Feature
from bot.features.typed import mended

FEATURES: tuple[Feature, ...] = (
    start.FEATURE,
    alert.FEATURE,
    list.FEATURE,
    run.FEATURE,
    actions.FEATURE,
    template.FEATURE,
    watch.FEATURE,
    doctor.FEATURE,
    help.FEATURE,
    menu.FEATURE,
    decide.FEATURE,
    more.FEATURE,
    home.FEATURE,
)

T = TypeVar("T")


def _merged(*tables: Mapping[str, T]) -> Mapping[str, T]:
    """One table; two features that claim the same id are a mistake of ours, found at import."""
    merged: dict[str, T] = {}
    for table in tables:
        if twice := merged.keys() & table.keys():
            raise ValueError(f"claimed twice: {', '.join(sorted(twice))}")
        merged.update(table)
    return merged


COMMANDS: Mapping[str, Command] = _merged(*(f.commands for f in FEATURES))
ACTIONS: Mapping[str, Entry] = _merged(*(f.actions for f in FEATURES))
OPTIONS: Mapping[str, Entry] = _merged(*(f.options for f in FEATURES))
VIEWS: Mapping[str, Entry] = _merged(*(f.views for f in FEATURES))
SHORTCUTS: Mapping[str, Entry] = _merged(*(f.shortcuts for f in FEATURES))
EVENTS: Mapping[str, Entry] = _merged(*(f.events for f in FEATURES))


def command_for(text: str) -> tuple[Entry, str]:
    """The entry for the text of the command, and the text that it gets (`Moment.text`).

    Nothing typed leads through a modal; what is mistyped goes whole to `help`, which says what was probably meant.
    """
    typed = mended(text)
    verb, _, rest = typed.partition(" ")
    if not verb:
        return COMMANDS["start"].entry, ""
    command = COMMANDS.get(verb.lower())
    if command is None:
        return help.UNKNOWN, typed
    if command.mistake(rest, ""):
        return help.MISTYPED, typed
    return command.entry, rest


def action_for(action_id: str) -> Entry | None:
    """The entry for a click; None for one that no release ever had."""
    return ACTIONS.get(ids.family(action_id))


def options_for(action_id: str) -> Entry | None:
    """The entry for a menu that is opened or typed into."""
    return OPTIONS.get(ids.family(action_id))
