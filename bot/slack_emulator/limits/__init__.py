"""Validation of messages, modals, App Homes and options, with the limits of Slack's "Block Kit reference".

Pure. `problems(surface, payload)` lists each problem in Slack's wording with a JSON pointer, such as
`must be less than 3001 characters [json-pointer:/blocks/0/text/text]`; an empty list means that Slack accepts it.
"""

from bot.slack_emulator.limits.elements import ELEMENTS
from bot.slack_emulator.limits.surfaces import BLOCKS_OF_MESSAGE, TEXT_OF_MESSAGE, blocks_size, problems
from bot.slack_emulator.limits.validation import Surface

__all__ = ["BLOCKS_OF_MESSAGE", "ELEMENTS", "TEXT_OF_MESSAGE", "Surface", "blocks_size", "problems"]
