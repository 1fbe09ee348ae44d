"""Certificates of authorities that only tests trust."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """A server of 127.0.0.1, the authority that it is from, and another one."""

    ca: Path
    other_ca: Path
    server: ssl.SSLContext


def certificates_in(folder: Path) -> Certificates:
    """Make them in this folder."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        openssl(
            "req", "-x509", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # which Python demands of a CA from 3.13 on
        )  # fmt: skip
    openssl(
        "req", "-x509", *new, "-subj", "/CN=soar", "-addext", "subjectAltName=IP:127.0.0.1",
        "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "authorityKeyIdentifier=keyid",
        "-CA", "ca.pem", "-CAkey", "ca.key",
        "-keyout", "server.key", "-out", "server.pem",
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return Certificates(folder / "ca.pem", folder / "other.pem", context)
