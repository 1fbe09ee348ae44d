"""Blocks that show everything the page can: each block and each element once."""

from typing import Any

Json = dict[str, Any]
HOSTILE = '<img src=x onerror="window.hurt=1"> <script>window.hurt=1</script> javascript:alert(1)'
PICTURE = "https://example.org/picture.png"


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text, "emoji": True}


def mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text}


def option(text: str, value: str, description: str | None = None) -> Json:
    more = {} if description is None else {"description": plain(description)}
    return {"text": plain(text), "value": value, **more}


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


OPTIONS = [option("Low", "low"), option("Medium", "medium"), option("High", "high", "Wakes somebody up")]
CONFIRM = {
    "title": plain("Isolate the host?"),
    "text": mrkdwn("*ws-042* loses its network. It can be undone."),
    "confirm": plain("Isolate"),
    "deny": plain("Keep it"),
    "style": "danger",
}


def button(text: str, action_id: str, **more: Any) -> Json:
    return {"type": "button", "text": plain(text), "action_id": action_id, "value": action_id, **more}


def element(kind: str, **more: Any) -> Json:
    return {"type": kind, "action_id": kind} | more  # an action_id stands once in a message or view


def hinted(kind: str, hint: str, **more: Any) -> Json:
    return element(kind, placeholder=plain(hint), **more)


def card() -> Json:
    """An alert's card: a colour bar, fields, buttons, a line for each run."""
    fields = ["*Source*\nMail gateway", "*TLP / PAP*\nAMBER / GREEN", "*Status*\nNew", "*Artifacts*\n3"]
    overflow = element("overflow", options=[option("Watch", "watch"), option("Actions", "actions")])
    blocks = [
        {
            "type": "section",
            "block_id": "head",
            "text": mrkdwn(
                "*<https://example.org/alert/12|Phishing mail to the finance team>*\n:red_circle: High · `~12`"
            ),
        },
        {"type": "section", "block_id": "facts", "fields": [mrkdwn(text) for text in fields]},
        {
            "type": "actions",
            "block_id": "deeds",
            "elements": [
                button("Run a responder", "run", style="primary"),
                button("Isolate host", "isolate", style="danger", confirm=CONFIRM),
                overflow,
            ],
        },
        {
            "type": "context",
            "block_id": "runs",
            "elements": [
                mrkdwn(":white_check_mark: *Block sender* by Anna Analyst, <!date^1700000000^{date_short} {time}|then>")
            ],
        },
    ]
    return {"text": "", "attachments": [{"color": "#d9364f", "blocks": blocks, "fallback": "Phishing mail"}]}


def texts() -> list[Json]:
    """Every block that only shows something."""
    long = (
        "*bold* _italic_ ~strike~ `code` <https://example.org|a link> <@U0BEN> <#C0SOC> <!channel> :rocket:\n"
        "> a quote, with *bold*\n```\nGET /path?a=1&amp;b=2\n```\nsnake_case_name and 2 * 3 * 4 stay"
    )
    rich = [
        {"type": "rich_text_section", "elements": [{"type": "text", "text": "Rich ", "style": {"bold": True}}]},
        {
            "type": "rich_text_list",
            "style": "bullet",
            "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "first point"}]}],
        },
        {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "preformatted"}]},
    ]
    return [
        {"type": "header", "block_id": "header", "text": plain("Everything at once :tada:")},
        {"type": "section", "block_id": "text", "text": mrkdwn(long)},
        {"type": "divider", "block_id": "line"},
        {"type": "rich_text", "block_id": "rich", "elements": rich},
        {"type": "image", "block_id": "picture", "image_url": PICTURE, "alt_text": "A picture from elsewhere"},
        {"type": "section", "block_id": "hostile", "text": mrkdwn(escaped(HOSTILE))},
        {"type": "section", "block_id": "hostile-plain", "text": plain(HOSTILE)},
        {"type": "section", "block_id": "bad-link", "text": mrkdwn("<javascript:window.hurt=1|press me>")},
    ]


def pickers() -> list[Json]:
    """Every element that a message can hold."""
    shown = [mrkdwn("A context line with "), {"type": "image", "image_url": PICTURE, "alt_text": "a picture"}]
    return [
        {
            "type": "section",
            "block_id": "accessory",
            "text": mrkdwn("Responder"),
            "accessory": hinted("external_select", "Pick a responder", min_query_length=0),
        },
        {
            "type": "actions",
            "block_id": "menus",
            "elements": [
                hinted("static_select", "Severity", options=OPTIONS),
                hinted("users_select", "Somebody"),
                hinted("channels_select", "A channel"),
                hinted("conversations_select", "A conversation"),
            ],
        },
        {
            "type": "actions",
            "block_id": "moments",
            "elements": [element("datepicker", initial_date="2026-01-31"), element("timepicker", initial_time="09:30")],
        },
        {
            "type": "actions",
            "block_id": "ticks",
            "elements": [element("checkboxes", options=OPTIONS), element("radio_buttons", options=OPTIONS)],
        },
        {
            "type": "section",
            "block_id": "many",
            "text": mrkdwn("Several"),
            "accessory": hinted("multi_static_select", "Severities", options=OPTIONS),
        },
        {
            "type": "actions",
            "block_id": "buttons",
            "elements": [
                button("Plain", "plain"),
                button("Open the docs", "docs", url="https://example.org/docs"),
                button("Sure?", "sure", confirm=CONFIRM),
                element("overflow", options=OPTIONS),
            ],
        },
        {"type": "context", "block_id": "context", "elements": shown},
    ]


def field(block_id: str, label: str, inner: Json, **more: Any) -> Json:
    return {"type": "input", "block_id": block_id, "label": plain(label), "element": inner, **more}


def form() -> Json:
    """A modal with every input."""
    loaded = hinted("multi_external_select", "Responders", min_query_length=2)
    blocks = [
        field("title", "Title", element("plain_text_input", max_length=100), hint=plain("As the case will be called.")),
        field("body", "Description", element("plain_text_input", action_id="lines", multiline=True), optional=True),
        field("count", "How many hosts", element("number_input", is_decimal_allowed=False, min_value="1")),
        field("mail", "Mail", element("email_text_input"), optional=True),
        field("link", "Link", element("url_text_input"), optional=True),
        field("severity", "Severity", hinted("static_select", "Choose one", options=OPTIONS), optional=True),
        field("responders", "Responders", loaded, optional=True),
        field("people", "People", hinted("multi_users_select", "Who"), optional=True),
        field("rooms", "Rooms", hinted("multi_conversations_select", "Where"), optional=True),
        field("day", "Day", element("datepicker"), optional=True),
        field("hour", "Hour", element("timepicker"), optional=True),
        field("ticks", "Options", element("checkboxes", options=OPTIONS), optional=True),
        field("files", "Files", element("file_input", filetypes=["json"], max_files=2), optional=True),
        field("radio", "One of", element("radio_buttons", options=OPTIONS), optional=True),
        {
            "type": "actions",
            "block_id": "more",
            "elements": [button("Add details", "push"), button("Refill", "refill")],
        },
    ]
    return modal("Everything", blocks, submit=plain("Send"), close=plain("Cancel"), callback_id="everything")


def modal(title: str, blocks: list[Json], **more: Any) -> Json:
    return {"type": "modal", "title": plain(title), "blocks": blocks, **more}


def home(visits: int) -> Json:
    """The app's Home."""
    return {
        "type": "home",
        "blocks": [
            {"type": "header", "text": plain("Open alerts")},
            {"type": "section", "text": mrkdwn(f"Shown *{visits}* times.")},
            {"type": "actions", "elements": [button("Refresh", "home_refresh")]},
        ],
    }
