"""Ids of buttons, menus, fields and views. They never change between releases: old cards live for ever."""

# Where several stand in one message each has `:` and a suffix (`numbered`), since Slack wants them unique there;
# dispatch is by what stands before it (`family`).

# Buttons and menus on messages. The value is an opaque id; what it means is the Intent in the bot's database.
RUN = "responder_run"
RUN_ANYWAY = "responder_run_anyway"
RUN_AGAIN = "responder_run_again"
DISMISS = "responder_dismiss"
MENU = "responder_menu"  # external_select; its block_id is MENU_BLOCK + the opaque id
MENU_BLOCK = "menu:"
MORE = "responder_more"  # overflow: each option's value is an opaque id of its own
CANCEL = "action_cancel"
APPROVE = "action_approve"
DENY = "action_deny"
REFRESH = "card_refresh"
DETAILS = "card_details"
LINK = "card_link"  # a button with an address: Slack tells of the click, nothing is to be done

# Fields and buttons in views.
START_OBJECT = "start_object"
START_RESPONDER = "start_responder"  # external_select
START_PARAMETERS = "start_parameters"
TEMPLATE_ADD_TASK = "template_add_task"
TEMPLATE_REMOVE_TASK = "template_remove_task"
TEMPLATE_ADD_FIELD = "template_add_field"
TEMPLATE_REMOVE_FIELD = "template_remove_field"
TEMPLATE_FROM_JSON = "template_from_json"
VALUE = "value"  # the one element of an input block; the block's id says which field it is

# Views.
START_VIEW = "start"
TEMPLATE_VIEW = "template"
TEMPLATE_JSON_VIEW = "template_json"
TEMPLATE_CHECK_VIEW = "template_check"
NOTICE_VIEW = "notice"
HOME_VIEW = "home"

# Shortcuts, as in manifest.yml.
RUN_SHORTCUT = "run_responder"
RUN_MESSAGE_SHORTCUT = "run_responder_on_message"


def numbered(action_id: str, suffix: str) -> str:
    """One of several of a kind in a message or view."""
    return f"{action_id}:{suffix}"


def family(action_id: str) -> str:
    """What kind of button or menu it is."""
    return action_id.partition(":")[0]
