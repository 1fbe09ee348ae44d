"""The settings of core, from the TOML file and the environment (`surface.md`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CoreSection(_Section):
    """`[core]`. Paths are relative to the folder of the TOML file; the loader makes them absolute."""

    database: Path = Path("responder-bot.db")
    host: str = "127.0.0.1"
    port: int = Field(9000, ge=0, le=65535)
    organisation: str = "default"
    user_domain: str = "responder-bot.local"
    vendor_alias: str = "cortex"
    product: str = "thehive"
    max_concurrent_actions: int = Field(4, ge=1)
    jobs: Path = Path("jobs")
    keep_jobs: bool = False
    environments: Path = Path("environments")
    body_limit_bytes: int = Field(1_048_576, ge=1024)
    report_limit_bytes: int = Field(1_048_576, ge=1024)
    event_days: int = Field(30, ge=1)


class EngineSection(_Section):
    """`[[engine]]`: `process` runs responders here, `cortex` speaks to a remote engine."""

    name: str
    type: Literal["process", "cortex"] = "process"
    responders: tuple[Path, ...] = ()
    url: str = ""
    api_key: str = ""
    proxy: str = ""
    ca_file: Path | None = None
    python: Path | None = None


class ResponderSection(_Section):
    """`[responder."Name_1_0"]`: values of its configuration items, and its policy."""

    config: Mapping[str, Any] = Field(default_factory=dict)
    confirm: str = ""
    approval: int = Field(0, ge=0)
    approval_expires_minutes: int = Field(60, ge=1)


class CoreSettings(_Section):
    """All that core is told."""

    core: CoreSection = Field(default_factory=CoreSection)
    engine: tuple[EngineSection, ...] = ()
    responder: Mapping[str, ResponderSection] = Field(default_factory=dict)
