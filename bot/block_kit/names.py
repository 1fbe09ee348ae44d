"""What people call responders. Requests to core take names only (core/docs/semantics.md#titles)."""

import re

from bot.block_kit.text import VIEW_TITLE_LIMIT, foreign, foreign_plain, readable_name
from core.models import Action, InputTitle, OfferedResponder

NAME_LIMIT = 120  # characters
_TYPEABLE = re.compile(r"[^\W\d_][\w.-]*(?: [\w.-]+)*")


def title(responder: OfferedResponder) -> str:
    """Its title; foreign text, not escaped."""
    return responder.title or readable_name(responder.name)


def deed(responder: OfferedResponder, approvals: int, limit: int) -> str:
    """What the button that asks for a run is called: `Isolate Host`, or `Ask to isolate host` if it needs approvals.

    Of what sends what it gets, `Send to` its host.
    """
    to = " and ".join(dict.fromkeys(one.rpartition("@")[2] for one in responder.policy.sends_to or ()))
    name, short = (f"Send to {to}", "Send") if to else (title(responder),) * 2
    if approvals:
        words = (word if any(map(str.isupper, word[1:])) else word.lower() for word in name.split())
        name, short = f"Ask to {' '.join(words)}", "Ask to send" if to else "Ask for approval"
    return foreign_plain(name if len(name) <= limit else short, limit)


def in_view(title: str, end: str = "") -> str:
    """A responder's title as the title or the button of a modal, with a number or a question mark at its end."""
    return foreign_plain(title, VIEW_TITLE_LIMIT - len(end)) + end


def overriding(title: str) -> str:
    """`Override: Block`, the title of a modal, or what there is room for of that."""
    return full if len(full := f"Override: {title}") <= VIEW_TITLE_LIMIT else "Override"


def shown(responder: OfferedResponder) -> str:
    """Its title; mrkdwn."""
    return foreign(title(responder), NAME_LIMIT)


def typed_names(responder: OfferedResponder) -> tuple[str, str]:
    """What somebody may type for it."""
    return title(responder), responder.name


def example(responder: OfferedResponder) -> str:
    """What to type for it in a command: its title, or its name if the title could be read as something else."""
    typed = title(responder)
    if _TYPEABLE.fullmatch(typed):
        return typed
    return f'"{responder.name}"' if " " in responder.name else responder.name


def titled_as(action: Action, other: Action | None) -> Action:
    """The action with all that only a document has of it."""
    if other is None:
        return action
    undo = action.undo
    if undo is not None and other.undo is not None:
        undo = undo.model_copy(update={"title": other.undo.title})
    only_there = ("responder_title", "inputs", "artifacts", "only_tells", "already", "decided_before", "why_not_decide")
    return action.model_copy(update={**{key: getattr(other, key) for key in only_there}, "undo": undo})


def titled_by(action: Action, responder: OfferedResponder) -> Action:
    """The action with the titles that its responder gives itself and its inputs."""
    inputs = [
        InputTitle(name=parameter.name, title=parameter.title, type=parameter.type)
        for parameter in responder.parameters or ()
    ]
    return action.model_copy(update={"responder_title": title(responder), "inputs": inputs})
