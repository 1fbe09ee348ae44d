"""The images of responders: pulled by `responder-bot responders install`, pinned by digest, and run by their id."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from core.common.private_files import make_private
from core.engines import files
from core.engines.container.runtime import Image, Runtime

_LIMIT_BYTES = 64 * 1024
AT_ONCE = 2


@dataclass(frozen=True)
class Pin:
    """An installed image: runs use this content, even after its tag has moved."""

    image: str
    """As the definition names it."""
    id: str = ""
    """`sha256:` and the digest of the content; `""` if it could not be installed."""
    digest: str = ""
    """`name@sha256:...` in its registry; `""` for an image that was made here."""
    reason: str = ""
    """Why the last attempt to install it failed."""


@dataclass(frozen=True)
class PullStatus:
    """Progress of `Images.install` on one image."""

    image: str
    state: Literal["cached", "pulling", "installed", "failed"]
    message: str = ""
    """Why it failed, or the digest that was installed."""


class Images:
    """The pins of one runtime, each a file below `root`."""

    def __init__(self, runtime: Runtime, root: Path) -> None:
        self._runtime = runtime
        self.root = root / f"images-{runtime.program}"

    def pin(self, image: str) -> Pin:
        """What is recorded of an image. Blocks for a read."""
        try:
            raw = json.loads(files.read_regular(self.root, self._file(image).name, limit_bytes=_LIMIT_BYTES))
            return Pin(image, *(str(raw[key]) for key in ("id", "digest", "reason")))
        except OSError as error:
            files.raise_if_exhausted(error)
        except (ValueError, LookupError, TypeError):
            pass  # damaged: install writes it again
        return Pin(image)

    async def install(
        self, images: Iterable[str], on_progress: Callable[[PullStatus], None], *, upgrade: bool
    ) -> tuple[PullStatus, ...]:
        """Pull the missing images and pin them; with `upgrade`, also those that are pinned already.

        Returns the final status of each. One that fails doesn't affect the others. Raises UnavailableError.
        """
        slots = asyncio.Semaphore(AT_ONCE)

        async def install_one(image: str) -> PullStatus:
            async with slots:
                status = await self._install(image, on_progress, upgrade)
            on_progress(status)
            return status

        return tuple(await asyncio.gather(*(install_one(image) for image in dict.fromkeys(images))))

    async def _install(self, image: str, on_progress: Callable[[PullStatus], None], upgrade: bool) -> PullStatus:
        pin = self.pin(image)
        if pin.id and not upgrade and await self._runtime.image(pin.id):
            return PullStatus(image, "cached", pin.digest or pin.id)
        pulled = None if upgrade or pin.id else await self._runtime.image(image)  # built or loaded on this machine
        reason = ""
        if not pulled:
            on_progress(PullStatus(image, "pulling"))
            pulled, reason = await self._pull(image, Pin(image) if upgrade else pin)
        if not pulled:
            self._write(Pin(image, pin.id, pin.digest, reason))
            return PullStatus(image, "failed", reason)
        digest = pulled.digests[0] if pulled.digests else ""
        self._write(Pin(image, pulled.id, digest))
        return PullStatus(image, "installed", digest or pulled.id)

    async def _pull(self, image: str, pin: Pin) -> tuple[Image | None, str]:
        """The image after a pull, or why there is none. One that was pinned is pulled by its digest."""
        name = pin.digest or qualified(image)
        if reason := await self._runtime.pull(name):
            return None, reason
        pulled = await self._runtime.image(name)
        if not pulled:
            return None, f"{name} was pulled and is not here; pull it by hand to see why."
        if pin.id and pulled.id != pin.id:
            return None, (
                f"{name} is not the image {pin.id} that was installed before;"
                " `responder-bot responders install --upgrade` takes the new one."
            )
        return pulled, ""

    def _file(self, image: str) -> Path:
        return self.root / f"{hashlib.sha256(image.encode()).hexdigest()[:32]}.json"

    def _write(self, pin: Pin) -> None:
        make_private(self.root)
        content: dict[str, Any] = asdict(pin)
        files.replace(self.root, self._file(pin.image).name, content=json.dumps(content).encode())


def qualified(image: str) -> str:
    """The name with its registry, as Docker Hub is meant where none is named; podman asks for it."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"
