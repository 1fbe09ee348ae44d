"""Programs that the measurements start: core, the bot, their peers, and the floors."""

import sys

# The log library imports rich where it is installed, and it came with the tools for developing: no user has it.
sys.modules["rich"] = None  # type: ignore[assignment]  # how an import is told that there is none
