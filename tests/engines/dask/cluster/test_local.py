"""Which main modules new processes import."""

import sys
import types
from multiprocessing import spawn

import pytest

from labkit.engines.dask.cluster.local import main_is_script, notebooks_not_imported

SCRIPT = "value = 1\n"
CASES = {
    "a script": ("train.py", SCRIPT, {}, True),
    "a script without ending": ("train", SCRIPT, {}, True),
    "a notebook whose file exists": ("exists.ipynb", "{}", {}, False),
    "a notebook whose file is missing": ("missing.ipynb", None, {}, False),
    "a file that is missing": ("missing.py", None, {}, False),
    "a kernel with the name of a script": ("train.py", SCRIPT, {"get_ipython": lambda: None}, False),
    "a folder": (".", None, {}, False),
    "no file": (None, None, {}, False),
    "no text": (7, None, {}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_new_processes_import_scripts_and_no_notebooks(case, tmp_path, monkeypatch):
    name, content, variables, expected = CASES[case]
    main = types.ModuleType("__main__")
    vars(main).update(variables)
    if isinstance(name, str):
        main.__file__ = str(tmp_path / name)
    elif name is not None:
        main.__file__ = name
    if content is not None:
        (tmp_path / name).write_text(content)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert main_is_script() is expected
    if name == 7:
        return
    before = spawn.get_preparation_data  # changed already if a cluster is open
    with notebooks_not_imported, notebooks_not_imported:
        assert ("init_main_from_path" in spawn.get_preparation_data("a process")) is expected
    assert spawn.get_preparation_data is before
