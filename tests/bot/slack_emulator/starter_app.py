"""An app as Bolt's guide starts one: a message, a command, a button, a menu, a modal, a Home."""

from typing import Any

from slack_bolt.app.async_app import AsyncApp

BUTTON = {"type": "button", "text": {"type": "plain_text", "text": "Click me"}, "action_id": "clicked", "value": "7"}
MENU = {"type": "external_select", "action_id": "picked", "min_query_length": 0}
MENU_PLACEHOLDER = {"type": "plain_text", "text": "Pick"}


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


def modal(title: str = "A form") -> dict[str, Any]:
    field = {"type": "plain_text_input", "action_id": "text", "max_length": 20}
    block = {"type": "input", "block_id": "name", "label": plain("Name"), "element": field}
    return {"type": "modal", "callback_id": "form", "title": plain(title), "submit": plain("Save"), "blocks": [block]}


def add_listeners(app: AsyncApp) -> None:
    """Everything that the tests use."""

    @app.message("hello")
    async def hello(message: Any, say: Any) -> None:
        section = {"type": "section", "text": plain("Hey there"), "accessory": BUTTON}
        menu = {"type": "actions", "block_id": "menus", "elements": [{**MENU, "placeholder": MENU_PLACEHOLDER}]}
        await say(text=f"Hey there <@{message['user']}>!", blocks=[section, menu])

    @app.action("clicked")
    async def clicked(ack: Any, body: Any, respond: Any) -> None:
        await ack()
        await respond(text=f"{body['user']['id']} clicked {body['actions'][0]['value']}", replace_original=True)

    @app.options("picked")
    async def offered(ack: Any, payload: Any) -> None:
        await ack(options=[{"text": plain(payload["value"] or "all"), "value": payload["value"] or "all"}])

    @app.action("picked")
    async def picked(ack: Any, say: Any, payload: Any) -> None:
        await ack()
        await say(f"picked {payload['selected_option']['value']}")

    @app.command("/echo")
    async def echo(ack: Any, command: Any) -> None:
        await ack(f"You said: {command['text']}")

    @app.command("/form")
    async def form(ack: Any, client: Any, body: Any) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=modal())

    @app.view("form")
    async def saved(ack: Any, view: Any, client: Any, body: Any) -> None:
        name = view["state"]["values"]["name"]["text"]["value"]
        if name == "taken":
            await ack(response_action="errors", errors={"name": "This name is taken."})
            return
        await ack()
        await client.chat_postMessage(channel="C0SOC", text=f"{body['user']['id']} saved {name}")

    @app.event("app_home_opened")
    async def home(event: Any, client: Any) -> None:
        blocks = [{"type": "section", "text": plain(f"Home of {event['user']}")}]
        await client.views_publish(user_id=event["user"], view={"type": "home", "blocks": blocks})
