"""The recorded digests: the baseline, and the intended changes on top of it.

`baseline.json` holds the digests of all runs before any change. Each intended change is a file `changes/NAME.json`:

    {"order": 3, "reason": "...", "test": "tests/...::test_...", "runs": ["kill/*"], "sections": ["ledger"],
     "digests": {"kill/Pipeline/chief": {"ledger": "0123456789"}}}

`test` is the node id of the independent oracle: the test that shows that the new result is right. `runs` and `sections`
declare what may change (`fnmatch` patterns of run names; names of sections), `digests` what has changed. What a change
does not list is unchanged. If two changes list the same section of a run, the one of the higher order is valid.
"""

from __future__ import annotations

import ctypes
import fnmatch
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
BASELINE, CHANGES = HERE / "baseline.json", HERE / "changes"
Digests = dict[str, dict[str, str]]  # run -> section -> digest


@dataclass(frozen=True)
class Record:
    """Digests and the environment that they were made in."""

    environment: dict[str, str]
    digests: Digests

    def save(self, path: Path) -> None:
        """One line a run: its digests in the order of the sections."""
        sections = list(next(iter(self.digests.values())))
        lines = {name: " ".join(made[s] for s in sections) for name, made in self.digests.items()}
        plain = {"environment": self.environment, "sections": sections, "runs": lines}
        path.write_text(json.dumps(plain, indent=0) + "\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        """The inverse of `save`."""
        plain = json.loads(path.read_text())
        digests = {name: dict(zip(plain["sections"], line.split())) for name, line in plain["runs"].items()}
        return cls(plain["environment"], digests)


@dataclass(frozen=True)
class Change:
    """An intended change; see the module docstring."""

    name: str
    order: int
    reason: str
    test: str
    runs: tuple[str, ...]
    sections: tuple[str, ...]
    digests: Digests = field(default_factory=dict)

    def covers(self, run: str, section: str) -> bool:
        """Whether this section of this run may change."""
        return section in self.sections and any(fnmatch.fnmatchcase(run, pattern) for pattern in self.runs)

    def save(self) -> None:
        """Write `changes/NAME.json`."""
        CHANGES.mkdir(exist_ok=True)
        plain = {key: value for key, value in vars(self).items() if key != "name"}
        head = json.dumps({k: v for k, v in plain.items() if k != "digests"}, indent=1)[:-2]
        rows = ",\n".join(f"  {json.dumps(run)}: {json.dumps(made)}" for run, made in self.digests.items())
        (CHANGES / f"{self.name}.json").write_text(f'{head},\n "digests": {{\n{rows}\n }}\n}}\n')

    @classmethod
    def load(cls, path: Path) -> Change:
        """The inverse of `save`."""
        plain = json.loads(path.read_text())
        plain |= {"runs": tuple(plain["runs"]), "sections": tuple(plain["sections"])}
        return cls(path.stem, **plain)


def baseline() -> Record:
    """The digests before any change."""
    return Record.load(BASELINE)


def changes() -> list[Change]:
    """All intended changes, in their order."""
    return sorted((Change.load(path) for path in CHANGES.glob("*.json")), key=lambda c: (c.order, c.name))


def expected(before: Iterable[Change]) -> Digests:
    """The baseline with these changes."""
    made = {run: dict(sections) for run, sections in baseline().digests.items()}
    for change in before:
        for run, sections in change.digests.items():
            made.setdefault(run, {}).update(sections)
    return made


# reproducible floats -------------------------------------------------------------------------------------------------

# Kernels that every x86-64 processor has. OpenBLAS, NumPy and the C library choose faster ones where they find them, and
# those round differently (fused multiply-add, other orders of summation).
FIXED = {
    "OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F,-AVX2_Usable,-FMA_Usable,-FMA4_Usable,-AVX512F_Usable",
}  # fmt: skip


def computed(names: Iterable[str] | None = None, settings: dict[str, str] | None = None) -> Record:
    """Carry out the runs of these names (None: all) in a process with fixed kernels and one thread.

    `settings`: other environment variables for that process.
    """
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # only what this processor has: no warning
    chosen = FIXED | ({"NPY_DISABLE_CPU_FEATURES": " ".join(found)} if found else {}) | (settings or {})
    variables = {k: v for k, v in os.environ.items() if k not in ("LABKIT_LIGHT", "NPY_ENABLE_CPU_FEATURES")} | chosen
    asked = json.dumps(None if names is None else list(names))
    done = subprocess.run(
        [sys.executable, str(HERE), "compute"], input=asked, capture_output=True, text=True, env=variables, check=False
    )
    if done.returncode:
        raise RuntimeError(f"The runs could not be carried out:\n{done.stderr[-4000:]}")
    return Record(environment(), json.loads(done.stdout.splitlines()[-1]))


def environment() -> dict[str, str]:
    """The environment on which floating-point results depend, besides the fixed kernels."""
    blas: dict[str, Any] = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "numpy": np.__version__, "blas": f"{blas.get('name')} {blas.get('version')}", "machine": platform.machine(),
        "c library": _c_library(),
    }  # fmt: skip


def _c_library() -> str:
    try:
        version = ctypes.CDLL(None).gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return platform.system()
    version.restype = ctypes.c_char_p
    return f"glibc {version().decode()}"


def floats_comparable(recorded: dict[str, str]) -> str | None:
    """None if floating-point sections can be compared here, else the reason why not."""
    here = environment()
    other = [
        f"{name} {here[name]} (recorded with {recorded.get(name)})" for name in here if here[name] != recorded.get(name)
    ]
    return None if not other else "floating-point sections are not compared: " + ", ".join(other)
