"""Send an object as JSON to the configured URL."""

import base64
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

SHOWN_CHARACTERS = 2000


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would send the object and the token to a URL that nobody configured."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def main(job: Path) -> None:
    job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    output = send(job_input, job_input.get("config") or {})
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
    print(output.get("errorMessage") or output["full"]["message"])


def send(job_input: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Post the object. Returns the content of output.json."""
    url = str(config.get("url") or "")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return failure("The configured url is no http or https address.")
    body = {key: job_input.get(key) for key in ("data", "dataType", "tlp", "pap", "message", "parameters")}
    login, _, address = parts.netloc.rpartition("@")
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        urllib.parse.urlunsplit(parts._replace(netloc=address)),
        data=json.dumps(body, ensure_ascii=False).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", "User-Agent": "ResponderBot_Webhook/1.0"},
        method="POST",
    )
    if config.get("token"):
        request.add_unredirected_header("Authorization", f"Bearer {config['token']}")
    elif login:
        credentials = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {credentials}")
    opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler(proxies(config)))
    try:
        with opener.open(request, timeout=float(config.get("timeout_seconds") or 30)) as response:
            return success(parts.hostname, response.status, response.read(SHOWN_CHARACTERS * 4))
    except urllib.error.HTTPError as error:
        text = error.read(SHOWN_CHARACTERS).decode("utf-8", "replace").strip()
        return failure(f"{parts.hostname} answered {error.code} {error.reason}. {text[:300]}".strip())
    except TimeoutError:
        return failure(f"{parts.hostname} did not answer in time; it is not known whether it got the object.")
    except urllib.error.URLError as error:
        return failure(f"{parts.hostname} could not be reached: {error.reason}")
    except (OSError, http.client.HTTPException) as error:
        return failure(f"{parts.hostname} broke off the connection: {error!r}")


def proxies(config: dict[str, Any]) -> dict[str, str] | None:
    """The configured proxies; None for those of the environment."""
    configured = {scheme: proxy for scheme, proxy in (config.get("proxy") or {}).items() if proxy}
    return configured or None


def success(host: str, status: int, body: bytes) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")[:SHOWN_CHARACTERS]
    message = f"Sent to {host}, which answered {status}."
    return {
        "success": True,
        "full": {"message": message, "status": status, "answer": text},
        "summary": {
            "taxonomies": [{"level": "info", "namespace": "ResponderBot", "predicate": "webhook", "value": str(status)}]
        },
        "artifacts": [],
        "operations": [],
    }


def failure(sentence: str) -> dict[str, Any]:
    return {"success": False, "errorMessage": sentence}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
