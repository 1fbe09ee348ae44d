"""Core's settings, from the TOML file and the environment (core/docs/operations.md#settings)."""

import glob
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from core.common.clock import duration_ms
from core.common.database.location import files_of
from core.common.grouping import grouped
from core.common.private_files import access_problem, mode_problem
from core.common.settings_file import (
    DATABASE,
    PREFIX,
    RetentionSection,
    Sections,
    SectionT,
    SettingsSection,
    SharedSection,
    SlackId,
    checked,
    read_sections,
    section,
    settings_error,
    shared_section,
    tables_of,
    variable_name,
    variables,
    with_file,
)
from core.field_types import in_a_list
from core.models import GROUP_NAME, MAX_UNDO_MINUTES, Parameter, parse_parameters
from core.protection import BLOCK, FILE, UNBLOCK, ListName, entry_problem

Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="a name of letters, digits, dots, _ and - that starts with a letter or digit",
    ),
]
"""Also used as a folder's name, so no slashes."""


_LIST_OR_ONE = BeforeValidator(in_a_list, json_schema_input_type=str | tuple[str, ...])


def _network(text: str) -> str:
    return str(ip_network(text))


Networks = Annotated[tuple[Annotated[str, AfterValidator(_network)], ...], _LIST_OR_ONE]


OWN_ENGINE = "core"
"""The engine that has Block and Unblock, and is always there."""


class CoreSection(SharedSection):
    """`[core]`. Paths are relative to the folder of the TOML file; the loader makes them absolute."""

    host: str = "127.0.0.1"
    host_name: str = Field("", pattern=r"^[!-~]{0,253}$", description="a name without blanks, such as web-1")
    """What people know this host by; "" for the machine's own name."""
    port: int = Field(9000, ge=0, le=65535)
    organisation: str = "default"
    user_domain: str = Field(
        "responder-bot.local", pattern=r"^[!-9;-?A-~]+$", description="a domain without @, such as example.org"
    )
    vendor_alias: str = Field(
        "cortex", pattern=r"^([a-z][a-z0-9_-]*)?$", description='a word in small letters, such as cortex, or ""'
    )
    product: str = Field("thehive", pattern=r"^[A-Za-z0-9_-]+$", description="a word, such as thehive")
    max_concurrent_actions: int = Field(4, ge=1)
    keep_jobs: bool = False
    confinement: Literal["landlock", "bwrap", "none"] = "landlock"
    """How the programs of responders are held to what they need."""
    body_limit_bytes: int = Field(1_048_576, ge=1024)
    event_days: int = Field(30, ge=1)
    trusted_proxies: Networks = Field(
        (), description='a list of addresses or networks, such as ["192.0.2.1", "198.51.100.0/24"]'
    )
    """Whose `X-Forwarded-For` says where a request comes from."""

    @property
    def jobs(self) -> Path:
        """The folder of the job folders of all engines."""
        return self.state / "jobs"

    @property
    def environments(self) -> Path:
        """The folder of what `responders install` has made."""
        return self.state / "environments"


class EngineSection(SettingsSection):
    """`[[engine]]`: `process` runs responders here, `cortex` speaks to a remote engine."""

    name: Name
    type: Literal["process", "cortex"] = "process"
    responders: tuple[Path, ...] = ()
    url: str = ""
    api_key: str = ""
    proxy: str = ""
    ca_file: Path | None = None
    python: Path | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a server runs its responders, and not this machine."""
        return self.type == "cortex"


_NAME = rf"^(@{GROUP_NAME}|[!-9;-?A-~][!-9;-~]*)$"
Names = tuple[Annotated[str, Field(pattern=_NAME)], ...]
"""Logins or their first parts, and groups as `@containment`."""
_NAMES = 'a list of logins and groups, such as ["anna", "@containment"]'


Rates = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}/[1-9][0-9]{0,4}[smhd]$")], ...],
    _LIST_OR_ONE,
    Field(description='a list of rates, such as ["5/1h", "20/1d"]; the units are s, m, h and d'),
]
"""How many runs there may be in any period of that length; see `Rate`."""


Paths = Annotated[tuple[str, ...], _LIST_OR_ONE]
"""One path into a body, or several (core/docs/sources.md#maps)."""
Values = Annotated[
    Mapping[str, Annotated[tuple[str, ...], _LIST_OR_ONE]],
    Field(description='a table of paths and their values, such as { status = ["resolved"] }'),
]
Duration = Annotated[
    str, Field(pattern=r"^[1-9][0-9]{0,4}[smhd]$", description="a time such as 30m, 6h or 2d; the units are s, m, h, d")
]


@dataclass(frozen=True)
class Rate:
    """At most `runs` in any period of `ms`."""

    runs: int
    ms: int
    text: str
    """Such as `5/1h`."""

    @staticmethod
    def parse(text: str) -> "Rate":
        """The rate of a text that `Rates` accepts."""
        runs, _, period = text.partition("/")
        return Rate(int(runs), duration_ms(period), text)


class OnlyOnSection(SettingsSection):
    """What a responder may run on; all that is given has to hold."""

    data_types: tuple[str, ...] = ()
    """Data types of artifacts, and kinds of objects, as in a responder's `dataTypeList`."""
    tags: tuple[str, ...] = ()
    """One of them has to be on the object, or on the alert or case that it belongs to."""
    severity_at_least: int = Field(1, ge=1, le=4)
    """Of the alert or case."""


def by_commas(value: Any) -> Any:
    """A text with commas as a list."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


_BY_COMMAS = BeforeValidator(by_commas, json_schema_input_type=str | tuple[str, ...])


class ResponderSection(SettingsSection):
    """`[responder."Name_1_0"]`: its configuration, its policy, and what its program may reach and use."""

    config: Mapping[str, Any] = Field(default_factory=dict)
    max_tlp: int | None = Field(None, ge=0, le=3)
    """The highest TLP of an object it may run on; None for that of its definition, or of its server."""
    max_pap: int | None = Field(None, ge=0, le=3)
    """The highest PAP, likewise."""
    confirm: str = ""
    approval: int = Field(0, ge=0)
    approval_expires_minutes: int = Field(60, ge=1)
    run_by: Names | None = Field(None, description=_NAMES)
    """Who may run it; None for whoever may run responders, an empty list for nobody."""
    approve_by: Names | None = Field(None, description=_NAMES)
    """Who may approve and deny its runs, which then need an approval; None for whoever may run responders."""
    ask: tuple[SlackId, ...] = Field(
        (), description='a list of ids of user groups and people in Slack, such as ["S0123456789"]'
    )
    """Who is asked to approve, in place of whoever may; it gives no right."""
    only_on: OnlyOnSection | None = None
    rate: Rates = ()
    rate_per_target: Rates = ()
    target: Annotated[tuple[str, ...], _BY_COMMAS] = Field(
        (), description='the data types, with commas between, such as "hostname, ip"'
    )
    """The data types of the artifacts that it acts on, in place of those of its definition."""
    protect: bool = True
    """Whether `[protect]` holds for it; False for one that only reads or tells."""
    parameter: tuple[Parameter, ...] = ()
    """Its inputs, in place of those of its definition."""
    undo: str = ""
    """The responder that undoes a run of it."""
    contains: bool = False
    """Whether its runs leave something in force; also said by `undo`."""
    undo_after_minutes: int = Field(0, ge=0, le=MAX_UNDO_MINUTES)
    """How long after its success it is undone; 0: not by itself."""
    allow_permanent: bool = False
    """Whether a run may ask for longer than that, or for no end."""
    confinement: Literal["landlock", "bwrap", "none"] | None = None
    """In place of that of `[core]`."""
    network: Literal["all", "none"] = Field(
        "all", description='one of "all" and "none"; to allow some hosts only, use a firewall'
    )
    readable: tuple[Path, ...] = ()
    """Files and folders that the program may read, beside what all may."""
    writable: tuple[Path, ...] = ()
    memory_mib: int = Field(2048, ge=16)
    """Address space of each of its processes."""
    processes: int = Field(256, ge=1)
    disk_mib: int = Field(256, ge=1)
    """Size of all files that it has at a time."""
    allow_builds: bool = False
    """Whether `responders install` may build its packages: their code then runs as core's account, unconfined."""


def section_for(name: str, sections: Mapping[str, ResponderSection]) -> ResponderSection | None:
    """The settings of the responder `name`, also where its name is in other letters, as in an environment variable."""
    if name in sections:
        return sections[name]
    return next((section for key, section in sections.items() if variable_name(key) == variable_name(name)), None)


class ProtectSection(SettingsSection):
    """`[protect]`: targets on which nothing may run (core/docs/guards.md#protected-targets)."""

    artifacts: Annotated[tuple[str, ...], _BY_COMMAS] = Field(
        (), description='a list of strings, such as ["10.0.0.0/8", "*.corp.example", "file:crown-jewels.txt"]'
    )
    """Addresses, networks, hosts, patterns with `*`, plain values, and `file:` with a path of a list of them."""


class BlocklistSection(SettingsSection):
    """`[blocklist]`: what Block can't put on the lists that firewalls read (core/docs/blocklist.md)."""

    never: Annotated[tuple[str, ...], _BY_COMMAS] = Field(
        (), description='a list of strings, such as ["203.0.113.0/24", "*.corp.example"]'
    )
    """As the entries of `[protect]`, but for files; nobody can override it."""
    max_entries: int = Field(10_000, ge=1, le=1_000_000)


class ReaderSection(SettingsSection):
    """`[reader."NAME"]`: which lists the user NAME, with the profile `reader`, may read, and how often it should."""

    lists: tuple[ListName, ...] = Field(("ip", "domain", "url", "hash"), description="a list of ip, domain, url, hash")
    expect_every: Duration | None = Field(None, description="a time such as 5m, within which it always reads them")
    comment: bool = Field(False, description="true or false")
    """Whether an empty list has a comment, for what takes nothing for an error and keeps its last list."""


class SecretSource(SettingsSection):
    """In place of a value of `config`: where a process engine reads it when a run needs it."""

    command: tuple[str, ...] = ()
    """Prints the value; run without a shell."""
    file: Path | None = None


class ObservableSection(SettingsSection):
    """An observable of an alert from a source: where it is in the body, and what it is."""

    path: str
    type: str = ""
    """Its data type; without one, what indicators the text holds."""
    message: str = ""
    """What it is in this alert, such as `destination`."""


class MappingSection(SettingsSection):
    """How bodies of a product become alerts (core/docs/sources.md#maps); a preset is a file with these keys."""

    format: Literal["json", "email"] = "json"
    each: Paths = ()
    """The list of alerts in one body: the first of these paths that is there; without it the body is one or a list."""
    when: Values = Field(default_factory=dict)
    """What is no alert is skipped: all of these paths must have one of their values."""
    resolved: Values = Field(default_factory=dict)
    """The alert is over if one of these paths has one of its values."""
    ends: str = ""
    """The path of the time at which the alert is over."""
    map: Mapping[str, Paths] = Field(default_factory=dict)
    """The path, or the paths, of each field of the alert."""
    custom_fields: Mapping[str, Paths] = Field(default_factory=dict, description="a table of names and paths")
    """Texts that responders look for in the alert, or in its case."""
    severity: Mapping[str, Annotated[int, Field(ge=1, le=4)]] = Field(
        default_factory=dict, description='a table such as { "0-6.9" = 1, "7-8.9" = 3, "9-" = 4, "critical" = 4 }'
    )
    observables: tuple[ObservableSection, ...] = Field(
        (), description='a list of tables, such as [{ type = "ip", path = "srcip" }]'
    )


class SourceSection(MappingSection):
    """`[source."NAME"]`: what the user NAME, with the profile `source`, may send to `/api/ingest/NAME`."""

    preset: str = ""
    """The file in core/sources/presets that has what is not given here."""
    tlp_at_least: int = Field(2, ge=0, le=3)
    trusted_tags: tuple[str, ...] = ()
    """Tags of `only_on` that it may set."""
    rate: str = Field(
        "6000/1m", pattern=r"^[1-9][0-9]{0,5}/[1-9][0-9]{0,4}[smhd]$", description="a rate of bodies, such as 6000/1m"
    )
    reopen_after: Duration = "24h"
    """An alert that somebody closed opens again if it is sent that much later."""
    expect_every: Duration | None = Field(None, description="a time such as 6h, within which something always comes")
    hmac_keys: tuple[str, ...] = Field(
        (), max_length=2, description="a list of one or two secrets of 16 characters or more"
    )


class CoreSettings(SettingsSection):
    """All settings of core."""

    core: CoreSection = Field(default_factory=CoreSection)
    engine: tuple[EngineSection, ...] = ()
    responder: Mapping[str, ResponderSection] = Field(default_factory=dict)
    protect: ProtectSection = Field(default_factory=ProtectSection)
    retention: RetentionSection = Field(default_factory=RetentionSection)
    source: Mapping[str, SourceSection] = Field(default_factory=dict)
    blocklist: BlocklistSection = Field(default_factory=BlocklistSection)
    reader: Mapping[str, ReaderSection] = Field(default_factory=dict)


INIT = "responder-bot init"


def mode_problems(settings: CoreSettings) -> list[str]:
    """What others on this machine can do with the files; nothing for those that are missing."""
    core, everyone_may_read = settings.core, 0o055
    problems = [mode_problem(core.jobs), mode_problem(core.environments, shared=everyone_may_read)]
    for file in files_of(core.database):
        problems += [mode_problem(beside) for beside in sorted(file.parent.glob(f"{glob.escape(file.name)}*"))]
        problems.append(mode_problem(file.parent, shared=0o075))  # its group may be one of administrators
    return [problem for problem in dict.fromkeys(problems) if problem]


def database_problem(settings: CoreSettings) -> str:
    """Why a core can't use its database, or should not make it where it is missing.

    It is for another account, something of an earlier core is there, or no folder. "" if it is there, or if this is a
    first start.
    """
    file = settings.core.database
    for used in files_of(file):
        if problem := access_problem(used):
            return problem
    if not isinstance(file, Path) or os.path.lexists(file):
        return ""
    cure = f"correct [core] {'state' if file == settings.core.state / DATABASE else 'database'}, or run `{INIT}`"
    if not file.parent.is_dir():
        return f"There is no folder {file.parent} for core's database; {cure}."
    jobs = settings.core.jobs
    earlier = [path for path in sorted(file.parent.glob("*.db")) if path.is_file()]
    earlier += [jobs] if jobs.is_dir() and any(jobs.iterdir()) else []
    if not earlier:
        return ""
    return f"There is no database {file}, but there is {earlier[0]}; {cure}."


def folder_problems(settings: CoreSettings) -> list[str]:
    """A sentence for each of core's folders that can't be created or written to. Creates nothing."""
    if settings.engine and all(engine.is_remote for engine in settings.engine):
        return []
    problems = []
    for folder in (settings.core.jobs, settings.core.environments):
        existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        reason = "is not a folder" if not existing.is_dir() else "can't be written to by this user"
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            what = "" if existing == folder else f", in which {folder} would be created,"
            problems.append(f"{existing}{what} {reason}; correct that, or set [core] state to another folder.")
    return problems


def secret_problems(settings: CoreSettings) -> list[str]:
    """A sentence for each file with a secret of a responder that can't be read now."""
    return [
        f'[responder."{name}".config] {item}: {value.file} can\'t be read; correct path or rights.'
        for name, responder in settings.responder.items()
        for item, value in responder.config.items()
        if isinstance(value, SecretSource) and value.file and not os.access(value.file, os.R_OK)
    ]


def host_name(settings: CoreSettings) -> str:
    """What people know this host by."""
    return settings.core.host_name or socket.gethostname()


# --- reading --------------------------------------------------------------------------------------------------------


def load(path: Path | None, environ: Mapping[str, str]) -> CoreSettings:
    """Load core's settings; without `path` from the default file, if it exists.

    Raises ResponderBotError("bad_request") with a sentence that says where the error is and what to do.
    """
    return core_settings(read_sections(path, environ))


def core_settings(sections: Sections) -> CoreSettings:
    """Core's settings from sections that were already read. Raises as `load` does."""
    return CoreSettings(**{name: read(sections) for name, read in READERS.items()})


def _core(sections: Sections) -> CoreSection:
    return section(CoreSection, "core", sections, defaults={"database": shared_section(sections).database})


def _named_tables(sections: Sections, kind: str, needed: str) -> Mapping[str, Mapping[str, Any]]:
    """The tables of the sections `[kind."NAME"]`, by name; `needed` is what one without a name lacks."""
    tables = sections.tables.get(kind, {})
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise settings_error(f"{sections.source}: [{kind}] needs {needed}.")
    return tables


def _programs(sections: Sections, kind: str, model: type[SectionT]) -> dict[str, SectionT]:
    """The sections `[source."NAME"]` or `[reader."NAME"]`, by the first part of the login that each is for."""
    tables = _named_tables(sections, kind, f'a name, such as [{kind}."edge"]')
    for name in tables:
        if problem := login_problem(name, kind):
            raise settings_error(f"{sections.source}: {problem}.")
    return {
        name: checked(model, table, f'{sections.source}: [{kind}."{name}"]', sections.folder)
        for name, table in tables.items()
    }


def _sources(sections: Sections) -> Mapping[str, SourceSection]:
    found = _programs(sections, "source", SourceSection)
    owners: dict[str, str] = {}
    for name, source in found.items():
        for secret in {*source.hmac_keys}:
            if (other := owners.setdefault(secret, name)) != name:
                raise settings_error(
                    f'{sections.source}: [source."{name}"] and [source."{other}"] have the same secret in hmac_keys,'
                    " so each would take what is signed for the other; give each its own."
                )
    return found


def login_problem(name: str, kind: str) -> str:
    """Why a source or a reader (`kind`) can't have this name, without a full stop; "" if it can."""
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name, re.ASCII):  # the first part of a login
        return ""
    return f"{name!r} can't be the name of a {kind}; take small letters, digits, dots, _ and -"


def _protect(sections: Sections) -> ProtectSection:
    """Its entries, with files as absolute paths. Files are read when a run is checked, as they may change."""
    protect = section(ProtectSection, "protect", sections)
    entries = []
    for entry in protect.artifacts:
        if problem := entry_problem(entry):
            raise settings_error(f"{sections.source}: [protect] artifacts: {problem}.")
        file = entry.strip().removeprefix(FILE).strip()
        is_file = entry.strip().startswith(FILE)
        entries.append(f"{FILE}{sections.folder / os.path.expanduser(file)}" if is_file else entry)
    return ProtectSection(artifacts=tuple(entries))


def _blocklist(sections: Sections) -> BlocklistSection:
    blocklist = section(BlocklistSection, "blocklist", sections)
    for entry in blocklist.never:
        problem = f"{entry!r} names a file" if entry.strip().startswith(FILE) else entry_problem(entry)
        if problem:
            raise settings_error(f"{sections.source}: [blocklist] never: {problem}.")
    return blocklist


_OF_ENGINE = f"{PREFIX}ENGINE_"


def _engines(sections: Sections) -> tuple[EngineSection, ...]:
    tables = tables_of("engine", sections)
    set_variables = {name for name, value in sections.environ.items() if name.startswith(_OF_ENGINE) and value}
    if not tables and set_variables:
        tables = [{"name": "local"}]  # the default engine
    engines: dict[int, EngineSection] = {}
    # Longest name first, so that variables of `soc_2` aren't taken for keys `2_...` of `soc`.
    for table in sorted(tables, key=lambda table: -len(str(table.get("name", "")))):
        own = f"{_OF_ENGINE}{variable_name(str(table.get('name', '')))}_"
        mine = {name: sections.environ[name] for name in set_variables if name.startswith(own)}
        set_variables -= mine.keys()
        engines[id(table)] = _engine(table, own, mine, sections)
    for variable in sorted(set_variables):
        known = ", ".join(str(table.get("name")) for table in tables) or "none"
        raise settings_error(
            f"The environment variable {variable} names no [[engine]] of {sections.source}; there are {known}."
        )
    ordered = tuple(engines[id(table)] for table in tables)
    _require_own_names(ordered, sections)
    return ordered


def _require_own_names(engines: Sequence[EngineSection], sections: Sections) -> None:
    if any(engine.name == OWN_ENGINE for engine in engines):
        raise settings_error(f"{sections.source}: {OWN_ENGINE} is the name of core's own engine; take another.")
    for name, *_ in _alike(engine.name for engine in engines):
        raise settings_error(f"{sections.source} has two [[engine]] called {name}; give one another name.")


def _engine(table: Mapping[str, Any], own: str, environ: Mapping[str, str], sections: Sections) -> EngineSection:
    """The engine of a table, and of its variables (`environ`), whose names begin with `own`."""
    location = f"{sections.source}: [[engine]] {table.get('name', 'without a name')}"
    keys = tuple(key for key in EngineSection.model_fields if key != "name")
    overrides = variables(environ, own, keys, "engine")
    values = {**table, **overrides}
    if isinstance(values.get("responders"), str):
        values["responders"] = [part for part in values["responders"].split(os.pathsep) if part]
    names = {key: own + variable_name(key) for key in overrides}
    engine = checked(EngineSection, values, location, sections.folder, names)
    missing = [key for key in ("url", "api_key") if engine.is_remote and not getattr(engine, key)]
    if missing:
        raise settings_error(f"{location} is of type cortex and needs {' and '.join(missing)}.")
    return engine


def _responders(sections: Sections) -> Mapping[str, ResponderSection]:
    tables = _named_tables(sections, "responder", 'the name of a responder, such as [responder."Mailer_1_0"]')
    values: dict[str, dict[str, Any]] = {name: dict(table) for name, table in tables.items()}
    for both in _alike(values, variable_name):
        twice = " and ".join(f'[responder."{name}"]' for name in both)
        raise settings_error(f"{sections.source} has {twice}, which mean the same responder; make them one.")
    for name, item, value in _responder_variables(sections.environ, values):
        config = dict(values.setdefault(name, {}).get("config", {}))
        config[next((key for key in config if variable_name(key) == item), item)] = value
        values[name]["config"] = config
    return {name: _responder(name, table, sections) for name, table in values.items()}


def _alike(names: Iterable[str], form: Callable[[str], str] = str) -> list[list[str]]:
    """The names that are the same in this form, those of each form together."""
    return [same for same in grouped((form(name), name) for name in names).values() if len(same) > 1]


def _responder(name: str, table: dict[str, Any], sections: Sections) -> ResponderSection:
    location = f'{sections.source}: [responder."{name}"]'
    _move_maxima(table, location)
    if isinstance(table.get("config"), Mapping):
        table["config"] = {
            item: _secret_source(value, f"{location} config.{item}", sections.folder)
            if isinstance(value, Mapping)
            else value
            for item, value in table["config"].items()
        }
    try:
        table["parameter"] = parse_parameters(table.get("parameter") or ())
    except ValueError as reason:
        raise settings_error(f'{sections.source}: [[responder."{name}".parameter]]: {reason}') from reason
    if name == BLOCK and table.setdefault("undo", UNBLOCK) != UNBLOCK:
        raise settings_error(f"{location} undo must be {UNBLOCK}, or left out.")
    if not table.get("undo") and (key := next((key for key in _OF_UNDO if table.get(key)), "")):
        raise settings_error(f"{location} {key} has no effect without undo; name the responder that undoes its runs.")
    section = checked(ResponderSection, table, location, sections.folder)
    if section.approve_by == ():
        raise settings_error(f"{location} approve_by is empty, so no run could ever start; name somebody.")
    return section.model_copy(update={"approval": 1}) if section.approve_by and not section.approval else section


def _move_maxima(table: dict[str, Any], location: str) -> None:
    """Move max_tlp and max_pap from `config`, where definitions have them, to the section."""
    config = table.get("config")
    if not isinstance(config, Mapping):
        return
    for key in ("max_tlp", "max_pap"):
        for item in [item for item in config if variable_name(item) == variable_name(key)]:
            if key in table:
                raise settings_error(f"{location} has {key} twice, once in config; remove that one.")
            table[key] = config[item]
            config = table["config"] = {other: value for other, value in config.items() if other != item}


_OF_UNDO = ("undo_after_minutes", "allow_permanent")


def _secret_source(table: Mapping[str, Any], location: str, folder: Path) -> SecretSource:
    source = checked(SecretSource, table, location, folder)
    is_command = bool(source.command and source.command[0])
    if is_command == bool(table.get("file")):
        raise settings_error(
            f'{location} is to have either command, such as ["vault", "read", "..."], or file, a path in quotes.'
        )
    return source


_OF_RESPONDER = f"{PREFIX}RESPONDER_"
# A responder's name ends with its version (`Mailer_1_0`): that separates it from the item if it isn't in the file.
_RESPONDER_VARIABLE = re.compile(r"(.+?_[0-9]+(?:_[0-9]+)*)_([^0-9].*)")


def _responder_variables(
    environ: Mapping[str, str], known: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, str, str]]:
    """Name, item (as `variable_name` gives it) and value of each `RESPONDER_BOT_RESPONDER_<NAME>_<ITEM>`."""
    names = sorted(filter(None, known), key=len, reverse=True)
    values: dict[tuple[str, str], str] = {}
    for variable in sorted(name for name, value in environ.items() if name.startswith(_OF_RESPONDER) and value):
        name, item = _name_and_item(variable, names)
        if item == "FILE" or item in {variable_name(key) for key in known.get(name, {}).get("config", {})}:
            values[name, item] = environ[variable]
        else:
            values[name, item.removesuffix("_FILE")] = with_file(environ, variable.removesuffix("_FILE"))
    return [(name, item, value) for (name, item), value in values.items()]


def _name_and_item(variable: str, names: Iterable[str]) -> tuple[str, str]:
    """The responder and the item that a variable is for; of these names the first that it begins with."""
    rest = variable.removeprefix(_OF_RESPONDER)
    for name in names:
        if rest.startswith(f"{variable_name(name)}_"):
            return name, rest[len(name) + 1 :]
    match = _RESPONDER_VARIABLE.fullmatch(rest)
    if match is None:
        sentence = f"The environment variable {variable} must end with a responder's name and an item"
        raise settings_error(f"{sentence}, as {_OF_RESPONDER}MAILER_1_0_SMTP_HOST does.")
    return match[1], match[2]


READERS: Mapping[str, Callable[[Sections], Any]] = {
    "core": _core,
    "engine": _engines,
    "responder": _responders,
    "protect": _protect,
    "retention": partial(section, RetentionSection, "retention"),
    "source": _sources,
    "blocklist": _blocklist,
    "reader": partial(_programs, kind="reader", model=ReaderSection),
}
"""What reads each section of core's."""
