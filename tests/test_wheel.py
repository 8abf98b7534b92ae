import sys
import zipfile
from pathlib import Path
from subprocess import run

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_page_and_nothing_of_the_tests(tmp_path: Path) -> None:
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"server/page/{path.name}" for path in (ROOT / "server" / "page").iterdir()} <= names
    assert not [name for name in names if name.startswith("tests")]
