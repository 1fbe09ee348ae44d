"""Which generation of thehive4py is installed: the two are different packages under one name."""

import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

GROUPS = {1: "clients-legacy", 2: "clients"}


def client(generation: int, module: str) -> Any:
    """A module of the client; skips the test module that asks for it where the other generation is installed."""
    installed = installed_version()
    if installed.partition(".")[0] != str(generation):
        reason = (
            f"needs thehive4py {generation}.x (uv's group {GROUPS[generation]}); installed is {installed or 'none'}"
        )
        pytest.skip(reason, allow_module_level=True)
    with warnings.catch_warnings():
        # The old generation calls itself unmaintained when it is imported, which is why it has a group of its own.
        warnings.filterwarnings("ignore", "thehive4py v1.x is not maintained anymore", DeprecationWarning)
        return import_module(module)


def installed_version() -> str:
    """Such as 2.1.0; empty where there is none."""
    try:
        return version("thehive4py")
    except PackageNotFoundError:
        return ""
