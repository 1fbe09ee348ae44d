"""The README says what is there."""

from tests.readme_map import ROOT, with_map


def test_the_map_is_made_from_the_modules() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme == with_map(readme), "run `uv run python -m tests.readme_map`"
