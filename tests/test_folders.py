"""A folder is read as one list, so each stays short."""

from tests.documents import ROOT

MOST = 15  # modules


def test_no_folder_has_more_modules_than_one_reads_at_once() -> None:
    paths = [path for name in ("bot", "core") for path in (ROOT / name).rglob("*.py")]
    folders = {path.parent for path in paths if "slack_emulator" not in path.parts}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST} == {}
