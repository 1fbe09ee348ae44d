"""The command `responder-bot`.

In the wheel this is the package that holds `bot` and `core`, since other distributions have a `core`, too.
"""

import sys

sys.path[:0] = globals().get("__path__", [])

from bot.cli import main as main  # noqa: E402  # found by the path above
