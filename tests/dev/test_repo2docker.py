"""repo2docker reads the folder `binder/` as Binder does, without Docker."""

import re
import subprocess
import sys
from pathlib import Path

from tests.binder.test_binder import python

ROOT = Path(__file__).parents[2]


def test_repo2docker_accepts_the_folder():
    options = ["--no-build", "--debug", "--user-id", "1000", "--user-name", "j"]
    command = [sys.executable, "-m", "repo2docker", *options, "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    dockerfile = done.stdout + done.stderr
    assert '/bin/pip install --no-cache-dir -r "binder/requirements.txt"' in dockerfile
    assert re.search(r"RUN (chmod \+x binder/postBuild|\./binder/postBuild)", dockerfile)
    assert 'R2D_ENTRYPOINT="${REPO_DIR}/binder/start"' in dockerfile
    assert f"Building conda environment for python={python()}\n" in dockerfile
