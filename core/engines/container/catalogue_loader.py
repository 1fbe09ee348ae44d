"""The responders of a container engine: their definitions, configuration and images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.engines import catalogue_loader
from core.engines.base import Responder, Skipped
from core.engines.configuration import ConfiguredResponder
from core.engines.container.images import Images, Pin
from core.engines.definitions import ImageDefinition, read_images
from core.settings import ResponderSection


@dataclass(frozen=True)
class RunnableImage:
    """A responder of the catalogue, with everything that a run needs."""

    responder: Responder
    configured: ConfiguredResponder[ImageDefinition]
    pin: Pin
    section: ResponderSection
    """What its container may reach and use."""


class CatalogueLoader(catalogue_loader.CatalogueLoader[ImageDefinition, RunnableImage]):
    """Lists the responders whose images are installed, and are still on this machine."""

    def __init__(
        self,
        engine: str,
        *,
        organisation: str,
        roots: Sequence[Path],
        sections: Mapping[str, ResponderSection],
        images: Images,
    ) -> None:
        self._images = images
        self.here: frozenset[str] = frozenset()
        """The ids of the images on this machine, as the engine learns them from its runtime."""
        super().__init__(
            engine,
            organisation=organisation,
            roots=roots,
            sections=sections,
            read=read_images,
            installed=images.root,
        )

    def signature(self) -> tuple[object, ...]:
        return (*super().signature(), self.here)

    def equip(
        self, responder: Responder, configured: ConfiguredResponder[ImageDefinition], section: ResponderSection
    ) -> RunnableImage | Skipped:
        definition = configured.definition
        pin = self._images.pin(definition.image)
        if pin.id in self.here:
            return RunnableImage(replace(responder, code=pin.id), configured, pin, section)
        advice = "its image is not installed; an administrator can run `responder-bot responders install`"
        reason, is_wanted = f"{definition.file}: {not_installed(pin)}", self.is_wanted(definition)
        if not is_wanted:
            reason = (
                f'{definition.file}: its image {definition.image} is not installed; add [responder."{definition.name}"]'
                " to the settings and run `responder-bot responders install`."
            )
        return Skipped(definition.name, reason, responder, advice, is_wanted)


def not_installed(pin: Pin) -> str:
    """Why an image can't be run, and what to do about it, as a sentence."""
    run = "run `responder-bot responders install`."
    if pin.reason:
        return f"its image {pin.image} could not be installed: {pin.reason.rstrip('.')}; correct that and {run}"
    return f"its image {pin.image} is {'no longer on this machine' if pin.id else 'not installed'}; {run}"
