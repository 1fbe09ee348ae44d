"""The packages in the `requirements.txt` of a responder, by name. Nothing else is allowed there.

Its author is not trusted: whatever else uv understands there (other indexes and files, paths of this machine, code that
runs to build a package) would be done by core's account, outside the confinement of runs.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from core.engines.files import raise_if_exhausted, read_in_folder

FILE = "requirements.txt"

_LIMIT_BYTES = 1024**2
_COMMENT = re.compile(r"(^|\s)#.*")
_HASH = re.compile(r"\s--hash[=\s]\s*(sha(?:256|384|512):[0-9a-f]{64,128})(?!\S)")
_OPTION = re.compile(r"--[a-z-]+|-[A-Za-z]")
_SOURCE = re.compile(r"(git\+)?https://[!-~]+|git\+ssh://[!-~]+")


class UnusableRequirementsError(Exception):
    """Why they can't be installed, as a sentence that names file and line."""


def read_requirements(folder: Path, *, allow_builds: bool) -> tuple[str, ...]:
    """The packages that the program in `folder` needs, each as a line for uv; none if the file is missing.

    With `allow_builds` a line may also name the source of a package, by https or git. Raises UnusableRequirementsError,
    and OSError when the machine is out of resources.
    """
    try:
        text = read_in_folder(folder, FILE, limit_bytes=_LIMIT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise_if_exhausted(error)
        raise UnusableRequirementsError(f"{folder / FILE} can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UnusableRequirementsError(f"{folder / FILE} is not UTF-8 text.") from error
    packages = []
    for number, line in _lines(text):
        try:
            packages.append(_requirement(line, allow_builds=allow_builds))
        except ValueError as reason:
            raise UnusableRequirementsError(f"{folder / FILE}, line {number}: {reason}") from reason
    return tuple(packages)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without comments; one that ends with a backslash goes on with the next."""
    begun, number = "", 1
    for following, line in enumerate(text.splitlines(), start=1):
        number = number if begun else following
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
            continue
        whole, begun = _COMMENT.sub("", begun + line).strip(), ""
        if whole:
            yield number, whole
    if begun.strip():
        yield number, begun.strip()


def _requirement(line: str, *, allow_builds: bool) -> str:
    """The line for uv. Raises ValueError with a sentence, which doesn't quote what may be a password."""
    hashes = [f" --hash={digest}" for digest in _HASH.findall(line)]
    line = _HASH.sub("", line).strip()
    if option := _OPTION.match(line):
        raise ValueError(f"the option {option[0]} is not allowed; name packages only.")
    if "${" in line:
        raise ValueError("it names a variable; write its value.")
    try:
        requirement = None if _SOURCE.fullmatch(line) else Requirement(line)
    except InvalidRequirement:
        raise ValueError("it is not the name of a package, such as requests>=2.31; write one.") from None
    source = requirement.url if requirement else line
    if source and not allow_builds:
        raise ValueError("it names where a package comes from, which allow_builds in the settings would permit.")
    if source and not _SOURCE.fullmatch(source):
        raise ValueError("a package can come from https:// or git+https:// only.")
    return "".join([str(requirement or line), *hashes])
