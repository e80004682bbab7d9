"""A repair of any store, and what is wrong with it whatever a broker says.

The plan says what it does and what stays, a second repair has nothing to do, and undo brings back every byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rmqtool.findings.catalogue import CATALOGUE
from tests.commands.running import rmqtool

GOES_ON = "verifies again and repairs the rest"
_RESTORED = [code for code, page in CATALOGUE.items() if page.treatment == "restore"]
_LEFT_TO_A_START = {code for code, page in CATALOGUE.items() if page.treatment == "start"}


@dataclass
class Repair:
    """What verify planned, what each repair said, and what is wrong whatever a broker says."""

    planned: dict[str, Any]
    said: list[dict[str, Any]]
    problems: list[str]

    @property
    def result(self) -> dict[str, Any] | None:
        """What the last repair says of the store; None where it could not finish."""
        found: dict[str, Any] | None = self.said[-1].get("result")
        return found


def planned_repair(root: Path, conf: Path, version: str) -> Repair:
    """Verify and repair."""
    verified = _run("verify", root, conf, version)
    planned = verified["result"]["plan"] if verified["result"] else {"steps": [], "remaining": []}
    for step in planned["steps"]:
        step["changes"] = [] if "--lose" in (step["command"] or "") else step["changes"]  # done only by that name
    return Repair(planned, [_run("repair", root, conf, version)], [])


def checked_repair(root: Path, conf: Path, version: str) -> Repair:
    """Repair, see that a second run has nothing to do and that undo brings all back, and repair again."""
    before = _digest(root)
    done = planned_repair(root, conf, version)
    if done.result is None:
        error = str(done.said[0].get("error"))
        if "no repair reaches it" not in str(done.planned) and "'not-a-store'" not in error:
            done.problems.append(f"stopped: {error}")
    elif done.result["state"] == "done":
        again = _run("repair", root, conf, version)
        if again["result"] is None or again["result"]["state"] != "nothing":
            done.problems.append(f"a second repair: {again.get('error') or again['result']['changes']}")
        done.problems += _unsaid(done)
        while (_document("undo", root, "--yes")["result"] or {}).get("state") == "rolled_back":
            pass
        if _digest(root) != before:
            done.problems.append(f"undo changes {sorted(set(before.items()) ^ set(_digest(root).items()))[:3]}")
        done.said.append(_run("repair", root, conf, version))
    elif _digest(root) != before:
        done.problems.append("nothing to repair, yet the store has changed")
    elif any(step["changes"] for step in done.planned["steps"]):
        done.problems.append("nothing is repaired, although the plan says so")
    return done


def _unsaid(done: Repair) -> Iterator[str]:
    """What stays although the plan did not say so, and a store that is left alone without a word."""
    result, planned = done.said[0]["result"], str(done.planned)
    stays = [each for each in done.said[0]["findings"] if each["severity"] != "info"]
    if stays and not (result["plan"]["steps"] or result["plan"]["remaining"]):
        yield f"stuck: {sorted(each['code'] for each in stays)}"
    # What a kill leaves is fixed by any start, and may be told only once a start can be foreseen.
    said = {"store.recorded-loss", "upgrade.setting", *_LEFT_TO_A_START}
    said |= set(_RESTORED if "'Restore " in planned or "'Mount the disk of the log" in planned else ())
    said |= {"config.delay-offset"} if "they may deliver it again" in planned else set()
    said |= {"config.topic-queues"} if "perm 0: it may not be read" in planned else set()
    said |= {code for code, _, why in (text.partition(": ") for text in result["plan"]["remaining"]) if why in planned}
    new = {each["code"] for each in stays if each["code"] not in planned and each["message"] not in planned} - said
    if new and GOES_ON not in planned:
        yield f"stays, and the plan did not say so: {sorted(new)}"


def _run(command: str, root: Path, conf: Path, version: str) -> dict[str, Any]:
    answer = ("--yes", "--allow-older-release") if command == "repair" else ()
    return _document(command, root, *answer, "--broker-conf", conf, "--broker-version", version)


def _document(*arguments: str | Path) -> dict[str, Any]:
    done = rmqtool(*arguments, "--json")
    if not done.out:
        return {"result": None, "error": done.err[-600:]}
    document: dict[str, Any] = done.document
    return document


def _digest(root: Path) -> dict[str, str]:
    """Size and content of each file, and the directories, but for what is ours."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith((".rmqtool", "lock")):
            found[name] = "" if path.is_dir() else blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return found
