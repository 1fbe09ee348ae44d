"""An object of each kind, to run responders on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.common.database import Database
from core.engines.base import Report
from core.models import (
    Action,
    ArtifactsInput,
    CaseInput,
    CaseTaskInput,
    Kind,
    LogInput,
    RunInput,
)
from core.records.alerts import Alerts
from core.records.cases import Cases
from tests.core.actions.harness import ANNA, LEAD, Harness, open_harness

NAME = "Notify_2_1"


@dataclass
class ObjectsOfEveryKind:
    """A store with one object of each kind, and the parts that run responders on them."""

    harness: Harness
    alerts: Alerts
    cases: Cases
    ids: dict[Kind, str]

    async def run(self, kind: Kind, *operations: Any, **more: Any) -> Action:
        """An action on the object of that kind, ended with these operations."""
        request = RunInput.model_validate(
            {"responderId": NAME, "objectType": kind, "objectId": self.ids[kind], **more.pop("request", {})}
        )
        started = await self.harness.actions.start(ANNA, request)
        run = await self.harness.engine.taken.get()
        run.finish(Report(True, operations=operations, **more))
        return await self.harness.ended(started.action.id)

    async def outcomes(self, kind: Kind, *operations: Any) -> list[tuple[str, str, str]]:
        """Type, status and message of each operation of a run."""
        recorded = json.loads((await self.run(kind, *operations)).operations)
        return [(operation["type"], operation["status"], operation["message"]) for operation in recorded]


@asynccontextmanager
async def objects_of_every_kind(tmp_path: Path, **options: Any) -> AsyncIterator[ObjectsOfEveryKind]:
    artifacts = [{"dataType": "ip", "data": "198.51.100.1"}]
    async with open_harness(tmp_path, artifacts=artifacts, **options) as harness:
        database: Database = harness.database
        cases = Cases(database, harness.clock)
        case = await cases.create(LEAD, CaseInput(title="c", description="d", tlp=1, pap=0))
        task = await cases.add_task(LEAD, case.id, CaseTaskInput(title="t"))
        log = await cases.add_log(LEAD, task.id, LogInput(message="m"))
        request = ArtifactsInput(data_type="ip", data=["192.0.2.1"], tlp=3)
        (artifact,) = await cases.add_artifacts(LEAD, case.id, request)
        ids: dict[Kind, str] = {
            "alert": harness.alert_id,
            "case": case.id,
            "case_task": task.id,
            "case_task_log": log.id,
            "case_artifact": artifact.id,
        }
        yield ObjectsOfEveryKind(harness, Alerts(database, harness.clock, "soc"), cases, ids)
