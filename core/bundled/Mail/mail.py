"""Send an object by mail."""

import json
import smtplib
import ssl
import sys
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Any

KINDS = {"alert": "Alert", "case": "Case", "case_task": "Task", "case_task_log": "Task log"}
LEVELS: dict[Any, str] = {0: "CLEAR", 1: "GREEN", 2: "AMBER", 3: "RED"}


def main(job: Path) -> None:
    job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    config = job_input.get("config") or {}
    output = send(compose(job_input, config), config)
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
    print(output.get("errorMessage") or output["full"]["message"])


def compose(job_input: dict[str, Any], config: dict[str, Any]) -> EmailMessage:
    """A mail about the object."""
    kind = KINDS.get(str(job_input.get("dataType", "")).rpartition(":")[2].lower(), "Object")
    mail = EmailMessage()
    mail["From"] = one_line(config.get("from"))
    mail["To"] = ", ".join(one_line(address) for address in config.get("to") or [])
    mail["Subject"] = f"[TLP:{LEVELS.get(job_input.get('tlp'), '?')}] {kind}: {one_line(title(job_input))[:150]}"
    mail["Date"] = formatdate()
    mail["Message-ID"] = make_msgid(domain="responder-bot.invalid")
    mail.set_content(body(job_input, kind))
    return mail


def file_name(artifact: dict[str, Any]) -> object:
    return (artifact.get("attachment") or {}).get("name")


def one_line(value: object) -> str:
    """Text for a header: a line break would begin another header."""
    return " ".join(str(value or "").split())


def title(job_input: dict[str, Any]) -> str:
    data = job_input.get("data") or {}
    task = data.get("case_task") or {}
    return str(data.get("title") or task.get("title") or data.get("_id") or "without a title")


def body(job_input: dict[str, Any], kind: str) -> str:
    data = job_input.get("data") or {}
    facts = {
        kind: title(job_input),
        "Id": data.get("_id") or data.get("id"),
        "Severity": data.get("severity"),
        "TLP": LEVELS.get(job_input.get("tlp")),
        "PAP": LEVELS.get(job_input.get("pap")),
        "Source": data.get("source"),
        "Reference": data.get("sourceRef"),
        "Tags": ", ".join(map(str, data.get("tags") or [])),
        "Sent by": (job_input.get("parameters") or {}).get("user"),
    }
    lines = [f"{name}: {one_line(value)}" for name, value in facts.items() if value not in (None, "")]
    text = str(data.get("description") or data.get("message") or "").strip()
    parts = [
        "\n".join(lines),
        job_input.get("message"),
        text,
        observables(data),
    ]
    return "\n\n".join(str(part) for part in parts if part) + "\n"


def observables(data: dict[str, Any]) -> str:
    """A line for each artifact, with a heading; "" without any."""
    lines = [
        f"- {one_line(item.get('dataType'))}: {one_line(item.get('data') or file_name(item))}"
        for item in data.get("artifacts") or []
        if isinstance(item, dict)
    ]
    return "\n".join(["Observables:", *lines] if lines else [])


def send(mail: EmailMessage, config: dict[str, Any]) -> dict[str, Any]:
    """Send the mail. Returns the content of output.json."""
    host, port = str(config.get("smtp_host")), int(config.get("smtp_port") or 25)
    try:
        with smtplib.SMTP(host, port, timeout=float(config.get("timeout_seconds") or 30)) as server:
            if config.get("starttls"):
                server.starttls(context=ssl.create_default_context())
            if config.get("username"):
                server.login(str(config["username"]), str(config.get("password") or ""))
            refused = server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        return failure(f"The mail server {host} refused every receiver: {reasons(error.recipients)}")
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return failure(f"The mail server {host} answered {error.smtp_code} {text}")
    except (OSError, smtplib.SMTPException) as error:
        reason = error.strerror or error  # without Python's [Errno 111]
        return failure(f"The mail server {host}:{port} could not take the mail: {reason}")
    return success(mail, refused)


def reasons(refused: dict[str, Any]) -> str:
    return "; ".join(f"{name}: {code} {text.decode('utf-8', 'replace')}" for name, (code, text) in refused.items())


def success(mail: EmailMessage, refused: dict[str, Any]) -> dict[str, Any]:
    message = f"Mail “{mail['Subject']}” sent to {mail['To']}."
    if refused:
        message += f" Refused were: {reasons(refused)}"
    return {
        "success": True,
        "full": {"message": message, "subject": str(mail["Subject"]), "to": str(mail["To"]), "id": mail["Message-ID"]},
        "summary": {
            "taxonomies": [{"level": "info", "namespace": "ResponderBot", "predicate": "mail", "value": "sent"}]
        },
        "artifacts": [],
        "operations": [],
    }


def failure(sentence: str) -> dict[str, Any]:
    return {"success": False, "errorMessage": sentence}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
