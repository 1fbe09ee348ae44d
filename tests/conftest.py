"""What holds for all tests: those whose dependency group is not installed are not even collected."""

from importlib.util import find_spec

NEEDS = {"browser": "playwright", "fuzz": "schemathesis", "clients": "thehive4py", "bench": "fastapi"}
FOLDERS = {"browser": "bot/browser", "fuzz": "fuzz", "clients": "clients", "bench": "bench"}

# `pytest -m browser` without its group then runs no test, which pytest reports as a failure (exit 5).
collect_ignore = [FOLDERS[group] for group, module in NEEDS.items() if find_spec(module) is None]
