"""Programs that the measurements start: core, the bot, their peers, and lower bounds."""

import sys

# structlog imports rich where it is installed; here a development tool brings it, users don't have it.
sys.modules["rich"] = None  # type: ignore[assignment]  # None makes the import fail
