"""Tests with schemathesis that the service behaves as its description says, for any request.

`WAYSTAGE_SCHEMATHESIS_S=600` searches for ten minutes, `WAYSTAGE_SCHEMATHESIS_SEED=7` with another seed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
from programs import ROOT

HERE = Path(__file__).parent
SEARCH_S = int(os.environ.get("WAYSTAGE_SCHEMATHESIS_S", "20"))
SEED = os.environ.get("WAYSTAGE_SCHEMATHESIS_SEED", "2041")
# A slow machine may take longer for the last round, but not indefinitely.
PATIENCE_S = 300


def test_the_stored_description_is_the_one_that_is_served(url):
    served = httpx.get(f"{url}/openapi.json")
    assert served.headers["content-type"] == "application/json"
    assert served.text == (ROOT / "docs/messages-openapi.json").read_text()


def test_the_page_has_every_operation_and_no_external_resource(url):
    page = httpx.get(f"{url}/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for item in httpx.get(f"{url}/openapi.json").json()["paths"].values():
        for operation in item.values():
            assert f'id="{operation["operationId"]}"' in page.text


def test_the_description_and_the_service_accept_the_same_durations(url, queue):
    operation = httpx.get(f"{url}/openapi.json").json()["paths"]["/v1/queues/{queue}/messages"]["post"]
    (delay,) = (parameter for parameter in operation["parameters"] if parameter["name"] == "delay")
    pattern = re.compile(delay["schema"]["pattern"])
    durations = {"1h": True, "1.5s": True, ".5s": True, "2m": True, "200ms": True, "0s": True}
    durations |= {"1": False, "s": False, "1 s": False, "-1s": False, "1d": False, "1h30m": False, "": False}
    for text, is_valid in durations.items():
        reply = httpx.post(
            f"{url}/v1/queues/{queue}/messages", params={"delay": text}, headers={"Waystage-Sender": "a"}
        )
        assert (bool(pattern.fullmatch(text)), reply.status_code == 201) == (is_valid, is_valid), text


def test_schemathesis_finds_nothing(url, tmp_path):
    operations = json.loads((ROOT / "docs/messages-openapi.json").read_text())["paths"].values()
    number = sum(len(item) for item in operations)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"]
    command += ["run", f"{url}/openapi.json", "--checks", "all", "--mode", "all", "--seed", SEED]
    command += ["--max-time", str(SEARCH_S), "--no-color", "--request-timeout", "60"]
    result = subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, timeout=SEARCH_S + PATIENCE_S, check=False
    )
    told = result.stdout + result.stderr
    assert result.returncode == 0, told
    tested = re.search(r"Tested: (\d+)", told)
    # It has read the description before, and does not request it again.
    assert tested and int(tested.group(1)) == number - 1, told
