import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "regard"


def test_reading_and_batching_need_no_torch():
    # a command that only reads text must start at once; regard/__init__.py may do as it likes
    modules = [f"regard.data.{path.stem}" for path in (PACKAGE / "data").glob("[a-z]*.py")]
    assert len(modules) > 10
    program = (
        "import sys, types; root = types.ModuleType('regard'); "
        f"root.__path__ = [{str(PACKAGE)!r}]; sys.modules['regard'] = root; "
        f"import {', '.join(modules)}; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
