#!python
"""The command `responder-bot`. Installers copy this file and put the environment's interpreter into its first line."""

import sys
from importlib.util import find_spec

# The wheel has both packages below `responder_bot`, since other distributions may also have a `core` or a `bot`.
installed = find_spec("responder_bot")
if installed is not None:
    sys.path[:0] = installed.submodule_search_locations or []

from bot.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
