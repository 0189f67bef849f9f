"""The programs are features of one binary: a build with one feature has only the packages of that feature."""

import re
import subprocess
from pathlib import Path

import pytest

from waylab.cli.main import _parser

ROOT = Path(__file__).parent.parent
FEATURES = ("proxy", "load", "cache", "messages", "simulate", "link", "keeper", "top")
# An async runtime, an HTTP framework and a PostgreSQL client: only the message service needs them.
MESSAGES_ONLY = {"tokio", "tokio-postgres", "tokio-rustls", "axum", "hyper", "hyper-util", "utoipa"}


def dependencies(*features: str) -> set[str]:
    """The names of all packages of a binary with these features, itself included."""
    command = ["cargo", "tree", "--locked", "--package", "waystage", "--edges", "normal", "--prefix", "none"]
    command += ["--format", "{p}", "--no-default-features", "--features", ",".join(features)]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout
    return {line.split()[0] for line in tree.splitlines() if line}


def test_a_build_with_all_features_has_every_package():
    assert set(FEATURES) | MESSAGES_ONLY <= dependencies("default")
    assert dependencies("default") == dependencies(*FEATURES, "otlp")


@pytest.mark.parametrize("feature", FEATURES)
def test_a_build_with_one_feature_lacks_the_packages_of_the_others(feature):
    found = dependencies(feature)
    assert found & set(FEATURES) == {feature}
    assert bool(found & MESSAGES_ONLY) == (feature == "messages")


def test_the_feature_for_spans_adds_the_messages_and_what_they_need():
    added = dependencies("proxy", "otlp") - dependencies("proxy")
    assert {"opentelemetry-proto", "prost", "httparse"} <= added
    assert not added & (MESSAGES_ONLY | {"tonic", "reqwest", "serde_derive", "tracing"}), added
    assert dependencies("otlp") == dependencies("proxy", "otlp")


def test_the_program_knows_the_commands_of_the_lab():
    text = (ROOT / "crates/waystage/src/main.rs").read_text()
    (commands,) = re.findall(r"const LAB_COMMANDS: .*? = \[(.*?)\];", text, re.DOTALL)
    ours = {name for action in _parser()._subparsers._group_actions for name in action.choices}
    assert set(re.findall(r'"(\w+)"', commands)) == ours and "demo" in ours
