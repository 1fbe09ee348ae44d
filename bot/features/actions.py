"""`/responder actions ~id`: what ran on an object."""

import asyncio

from bot.cards import runs
from bot.cards.lists import action_list
from bot.features import responses, subjects
from bot.features.access import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.redaction import Subject

USAGE = "actions ~id"


async def on_actions_command(context: Context) -> None:
    """List the runs, newest first."""
    _, object_id = subjects.require_id(context, USAGE)
    await show(context, await subjects.find(context.core, object_id))


async def show(context: Context, subject: Subject) -> None:
    """Show the runs on this object to the person."""
    listed, offered = await asyncio.gather(
        context.core.actions(subject.kind, subject.id),
        context.core.responders(subject.kind, subject.id, explain=True),
    )
    known, now = {r.name: r for r in offered}, context.services.clock_ms()
    actions = [runs.titled_by(a, known[a.responder_name]) if a.responder_name in known else a for a in listed]
    shown = action_list(actions, subject, clearance=own_clearance(context), now_ms=now)
    await responses.show(context, f"What ran on {subject.id}", shown)


FEATURE = Feature(
    commands={
        "actions": Command(
            Entry(on_actions_command),
            USAGE,
            "what ran on it, and how it went",
            usage_error=subjects.missing_id(USAGE),
        )
    }
)
