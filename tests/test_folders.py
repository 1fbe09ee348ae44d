"""A folder is read as one list, so each stays short."""

from tests.documents import ROOT

MOST = 15  # modules


def test_no_folder_of_the_bot_has_more_modules_than_one_reads_at_once() -> None:
    folders = {path.parent for path in (ROOT / "bot").rglob("*.py") if "slack_emulator" not in path.parts}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST} == {}
