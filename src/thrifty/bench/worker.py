"""The process in which one method's experiment runs: ``python -m thrifty.bench.worker JOB.json``.

It keeps the result file up to date with everything found so far, so that the parent, which ends it when its time is up,
still has the rows that were finished. Progress goes to the original standard output as lines of JSON; whatever the
experiment prints goes to standard error.

What an experiment does once an installation (compiling kernels, say) is in the optional ``prepare()`` of its module;
like fetching, it is done before the clock starts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from thrifty._common.files import write_whole
from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Mode
from thrifty.bench.context import Context
from thrifty.bench.evidence import NEEDS_FULL, Evidence


@dataclass(frozen=True)
class Job:
    """What the parent asks for; paths are absolute."""

    name: str
    evidence: str  # the module that holds CLAIMS and run
    mode: Mode
    seed: int
    device: str
    data: str | None
    budget: float  # seconds
    result: str
    resume: str | None


def run(job: Job, events: Any) -> None:
    """Run the experiment and leave its record in ``job.result``."""
    began = time.monotonic()
    record: dict[str, Any] = {
        "complete": False, "error": None, "fault": False, "resumed": 0, "ceilings": {}, "versions": {},
    }  # fmt: skip

    def keep(found: Mapping[str, Any], **more: Any) -> None:
        record.update(found, seconds=round(time.monotonic() - began, 2), **more)
        write_whole(job.result, json.dumps(record), force=True)

    def keep_so_far(evidence: Evidence) -> None:
        keep(evidence.to_json("the run was ended before this was measured"))

    def tell(done: int, total: int, text: str) -> None:
        events.write(json.dumps({"done": done, "total": total, "text": text}) + "\n")

    def fail(what: str, error: Exception) -> None:
        """Keep what was found; a fault in the experiment is told apart from data or a package that is absent."""
        absent = isinstance(error, UnavailableError | ImportError)
        if not absent:
            traceback.print_exc()
        reason = str(error) if absent else f"{what}: {type(error).__name__}: {error}"
        keep(_with_reason(record, reason), error=reason, fault=not absent)

    keep(Evidence((), job.mode).to_json())
    try:
        module = import_module(job.evidence)
        keep(Evidence(module.CLAIMS, job.mode).to_json("the run was ended before this was measured"))
        if hasattr(module, "prepare"):
            module.prepare()
    except Exception as error:
        fail("the experiment could not be prepared", error)
        return
    events.write(json.dumps({"began": True}) + "\n")
    began = time.monotonic()
    context = Context(
        claims=module.CLAIMS,
        mode=job.mode,
        seed=job.seed,
        device=job.device,
        data=Path(job.data) if job.data else None,
        deadline=began + job.budget,
        on_progress=tell,
        on_change=keep_so_far,
        resume=Path(job.resume) if job.resume else None,
    )
    try:
        found = module.run(context).to_json()
    except Exception as error:
        fail("the run failed", error)
    else:
        record["ceilings"] = {name: value.to_json() for name, value in context.ceilings.items()}
        keep(found, complete=True, resumed=context.resumed, versions=_versions())
        if context.resume:
            shutil.rmtree(context.resume, ignore_errors=True)


def _with_reason(record: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Give every claim that the run did not reach the reason why."""
    claims = [
        claim | {"reason": reason} if claim["status"] == "cannot show" and claim["reason"] != NEEDS_FULL else claim
        for claim in record["claims"]
    ]
    return {"claims": claims}


def _versions() -> dict[str, str]:
    """Return the versions of those of Thrifty's requirements that this run imported."""
    wanted = {requirement.split(";")[0].strip(" ()") for requirement in metadata.requires("thrifty") or []}
    names = {"".join(char if char.isalnum() or char in "-_." else " " for char in name).split()[0] for name in wanted}
    loaded = {module.partition(".")[0] for module in sys.modules}
    versions = {"python": sys.version.split()[0], "thrifty": metadata.version("thrifty")}
    for module, packages in metadata.packages_distributions().items():
        for package in packages:
            if module in loaded and package in names:
                versions[package] = metadata.version(package)
    return dict(sorted(versions.items()))


def main(path: str) -> None:
    """Read the job and run it, with standard output kept for progress."""
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run(Job(**json.loads(Path(path).read_text())), events)


def write_job(job: Job, path: Path) -> None:
    """Leave a job where :func:`main` reads it."""
    write_whole(path, json.dumps(asdict(job)), force=True)


if __name__ == "__main__":
    main(sys.argv[1])
