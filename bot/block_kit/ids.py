"""Ids of buttons, menus, fields and views. They never change between releases: old cards live for ever.

Slack wants action ids to be unique in a message, so of several of a kind each gets `:` and a suffix (`numbered`);
interactions are dispatched by what is before it (`family`).
"""

# Buttons and menus on messages. Their value is an opaque id, for which the bot's tables have the Intent.
RUN = "responder_run"  # of 0.2.0, as the next and DISMISS: it asked beside the form to confirm a run
RUN_ANYWAY = "responder_run_anyway"
RUN_AGAIN = "responder_run_again"
DISMISS = "responder_dismiss"
MENU = "responder_menu"  # external_select; its block_id is MENU_BLOCK + the opaque id
MENU_BLOCK = "menu:"
MORE = "responder_more"  # overflow: each option's value is an opaque id of its own
CANCEL = "action_cancel"
APPROVE = "action_approve"
DENY = "action_deny"
WITHDRAW = "action_withdraw"
SHOW_AGAIN = "card_refresh"
DETAILS = "card_details"
CASE_TEMPLATE = "case_template"
INTO_CASE = "into_case"
UNDO = "action_undo"
EXTEND = "action_extend"
MARK_ENDED = "mark_ended"
BREAK_GLASS = "break_glass"
HELP = "overview"
PENDING = "pending"
OPEN_ALERTS = "open_alerts"
ASSIGN = "card_take"
UNASSIGN = "card_release"
GROUP_ALERTS = "group_alerts"
GROUP_READ = "group_read"
GROUP_RUN = "group_run"
GROUP_MORE = "group_more"  # overflow
REOPEN = "reopen"
GROUP_CARD = "group_card"  # gives an alert of a group a card of its own
BULK_RETRY = "bulk_retry"
BULK_DETAILS = "bulk_details"
BULK_REVIEW = "bulk_review"
BULK_DENY = "bulk_deny"
BULK_UNDO = "bulk_undo"
BULK_EXTEND = "bulk_extend"
MAKE_CASE = "make_case"  # that a responder needs
SEVERAL = "several"  # choose several objects to run on, or alerts to assign or close
SEVERAL_ASSIGN = "several_assign"
SEVERAL_CLOSE = "several_close"
SEVERAL_CASE = "several_case"
LINK = "card_link"  # a button with a URL: Slack sends its click, which needs no answer

# Fields and buttons in views.
START_RESPONDER = "start_responder"  # external_select
SEVERAL_ALERTS = "several_alerts"
SEVERAL_TARGETS = "several_targets"  # multi_external_select
VALUE = "value"  # the element of an input block, whose block id names the field

# Views.
START_VIEW = "start"
SEVERAL_VIEW = "several"
TEMPLATE_VIEW = "template"
UNDO_VIEW = "undo"
EXTEND_VIEW = "extend"
EXTEND_ALL_VIEW = "extend_all"
UNDO_ALL_VIEW = "undo_all"
APPROVE_VIEW = "approve"
BULK_APPROVE_VIEW = "bulk_approve"
BULK_DENY_VIEW = "bulk_deny"
DENY_VIEW = "deny"
CLOSE_VIEW = "close"
CLOSE_ALL_VIEW = "close_all"
REOPEN_VIEW = "reopen_all"
GROUP_CASE_VIEW = "group_case"
MUTE_VIEW = "mute"
MARK_ENDED_VIEW = "mark_ended"
NOTICE_VIEW = "notice"
HOME_VIEW = "home"  # also the suffix of each modal that was opened from it

# Shortcuts, as in manifest.yml.
RUN_SHORTCUT = "run_responder"
RUN_MESSAGE_SHORTCUT = "run_responder_on_message"


def numbered(action_id: str, suffix: str) -> str:
    """The action id of one of several of a kind."""
    return f"{action_id}:{suffix}"


def family(action_id: str) -> str:
    """The kind of a button, a menu or a view."""
    return action_id.partition(":")[0]
