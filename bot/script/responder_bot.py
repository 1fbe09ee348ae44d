"""The command `responder-bot`.

In the wheel this is the package that holds `bot` and `core`, since other distributions have a `core`, too.
"""

import sys


def main() -> int:
    sys.path[:0] = globals().get("__path__", [])
    from bot.cli import main as command

    return command()
