"""The peer of the bot, as a competent developer would write it: Bolt with its defaults, httpx, and polling.

It acknowledges first, shows that the run started, and polls `servers.peer_core` every 250 ms.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import uvloop
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from tests.bench.servers.slack_app import events_of, serve

POLL_S = 0.25
ACTIONS = "/api/connector/engine/action"
MARKS = {"Waiting": "○", "InProgress": "◐", "Success": "✅", "Failure": "❌"}


def application(given: dict[str, Any]) -> AsyncApp:
    slack = given["slack"]
    client = AsyncWebClient(token=slack["bot_token"], base_url=slack["api_url"])
    app = AsyncApp(client=client, signing_secret=slack["signing_secret"])

    async def core(method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {given['core_key']}"}
        async with httpx.AsyncClient(base_url=given["core_url"], headers=headers) as http:
            answer = await http.request(method, path, json=body)
            return answer.raise_for_status().json()

    @app.action("run")
    async def on_run(ack: Any, action: Any, body: Any, client: AsyncWebClient) -> None:
        await ack()
        channel, ts = body["channel"]["id"], body["message"]["ts"]
        request = {"responderId": "r-working", "objectType": "alert", "objectId": action["value"]}
        run = await core("POST", ACTIONS, request)
        await client.chat_update(channel=channel, ts=ts, **card(action["value"], run))
        while run["status"] in ("Waiting", "InProgress"):
            await asyncio.sleep(POLL_S)
            run = await core("GET", f"{ACTIONS}/{run['id']}")
        await client.chat_update(channel=channel, ts=ts, **card(action["value"], run))

    return app


def card(alert_id: str, action: Any = None) -> dict[str, Any]:
    """The message of an alert, with the status of its run."""
    status = f"{MARKS[action['status']]} {action['responderName']} {action['status']}" if action else "Nothing ran yet."
    button = {"type": "button", "action_id": "run", "text": {"type": "plain_text", "text": "Run"}, "value": alert_id}
    return {
        "text": f"Alert {alert_id}: {status}",
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": f"*Alert {alert_id}*\n{status}"}},
            {"type": "actions", "elements": [button]},
        ],
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    uvloop.run(serve(events_of(application(given))))
