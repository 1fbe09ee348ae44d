"""Runs `launcher.py` as a module, which Python compiles once and not for each run."""

import sys

from launcher import main  # type: ignore[import-not-found]  # the file beside this one

sys.exit(main(*sys.argv[1:]))
