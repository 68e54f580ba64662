"""Worker processes leave with their parent."""

from __future__ import annotations

import os
import subprocess
import sys

ENDLESS = """
import sys
from dataclasses import dataclass

from directloss_repro.pool import Pool


@dataclass
class Endless:
    key = "endless"
    spec = None

    def run(self):
        print("at work", flush=True)
        while True:
            pass


if __name__ == "__main__":
    pool = Pool(2)
    pool.submit(Endless())
    pool.collect()
"""


def test_a_worker_in_the_middle_of_a_job_ends_when_its_parent_is_killed(tmp_path: object) -> None:
    """The worker holds the other end of our pipe: it is closed when, and only when, the worker is gone."""
    script = os.path.join(str(tmp_path), "endless.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(ENDLESS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.kill()
        assert process.stdout.read() == ""
