"""Makes the README's map of the code from the modules' first sentences.

`uv run python -m tests.readme_map` writes it; a test holds that it is current.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- map: made by tests/readme_map.py -->", "<!-- end of map -->"


def first_sentence(path: Path) -> str:
    """The first line of a module's docstring."""
    doc = ast.get_docstring(ast.parse(path.read_text()))
    return doc.splitlines()[0] if doc else ""


def tree_lines(package: Path) -> list[str]:
    """One line for each module that says what it is for, folders before their content."""
    lines = []
    for path in sorted(
        package.rglob("*.py"), key=lambda path: (path.parent.parts, path.name != "__init__.py", path.name)
    ):
        if path.parent.parent.name in ("bundled", "responders"):  # programs of their own, one folder each
            continue
        sentence = first_sentence(path)
        if sentence:
            place = path.parent if path.name == "__init__.py" else path
            lines.append(
                f"{place.relative_to(ROOT).as_posix() + ('/' if path.name == '__init__.py' else ''):42}{sentence}"
            )
    return lines


def made_map() -> str:
    return "\n".join([BEGIN, "```text", *tree_lines(ROOT / "core"), "", *tree_lines(ROOT / "bot"), "```", END])


def with_map(readme: str) -> str:
    """The README with its map made anew."""
    before, rest = readme.split(BEGIN)
    return before + made_map() + rest.split(END)[1]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_map(readme.read_text()))
