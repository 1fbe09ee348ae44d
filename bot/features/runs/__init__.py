"""Run a responder: the one way from a command, a menu, a button or a shortcut to a run.

`command`, `clicks`, `choose` and `form` are the ways in. Each makes a `RunRequest` and hands it to `flow`: targets,
responder, parameters, confirmation, start.
"""
