"""`python -m pytest` puts the source folder first on the path. The tests judge the installed
package; only where there is none (an extension built in place) that of the source folder."""

import importlib.machinery
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
if importlib.machinery.PathFinder.find_spec("memprof", _elsewhere) is not None:
    sys.path[:] = _elsewhere
else:
    sys.path[:] = [str(Path(entry).resolve()) for entry in sys.path]
    _paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))  # for subprocesses
