"""packaging/kubernetes: its parts fit together, and the proxy accepts its configuration and serves its probes.

No cluster is needed. The schemas of Kubernetes are too large for the tests; docs/install.md has the command for them.
"""

import subprocess
import tomllib
import urllib.request
from urllib.error import HTTPError

import pytest
import yaml
from programs import ROOT, WAYSTAGE, free_ports
from proxies import cache_servers, running_proxy, until

FOLDER = ROOT / "packaging/kubernetes"
MIB = 1024**2


def read(name: str) -> dict:
    return yaml.safe_load((FOLDER / name).read_text())


@pytest.fixture(scope="module")
def pod() -> dict:
    return read("deployment.yaml")["spec"]["template"]


@pytest.fixture(scope="module")
def container(pod) -> dict:
    (found,) = pod["spec"]["containers"]
    return found


def test_the_kustomization_names_every_file_of_its_folder():
    kustomization = read("kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    named = {"kustomization.yaml", *kustomization["resources"], *generated["files"]}
    assert named == {path.name for path in FOLDER.iterdir()}


def test_every_selector_selects_the_pods_of_the_deployment(pod):
    """An empty selector of a disruption budget would select all pods of its namespace."""
    labels = pod["metadata"]["labels"]
    assert labels
    assert read("deployment.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert read("disruption.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert read("service.yaml")["spec"]["selector"] == labels


def test_the_pod_mounts_the_configuration_where_the_proxy_reads_it(pod, container):
    (volume,), (mount,) = pod["spec"]["volumes"], container["volumeMounts"]
    (generated,) = read("kustomization.yaml")["configMapGenerator"]
    assert volume["name"] == mount["name"]
    assert volume["configMap"]["name"] == generated["name"]
    assert container["args"] == ["proxy", "--config", f"{mount['mountPath']}/{generated['files'][0]}"]


def test_the_proxy_accepts_the_configuration_and_listens_on_the_ports_of_the_container(container):
    command = [WAYSTAGE, "proxy", "--check", "--config", FOLDER / "proxy.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    config = tomllib.loads((FOLDER / "proxy.toml").read_text())
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert config["listen"] == f"0.0.0.0:{ports['memcached']}"
    assert config["metrics"] == f"0.0.0.0:{ports['metrics']}"
    (service_port,) = read("service.yaml")["spec"]["ports"]
    assert service_port["targetPort"] == "memcached"


def test_the_container_may_use_twice_the_memory_that_waits_in_the_proxy(container):
    config = tomllib.loads((FOLDER / "proxy.toml").read_text())
    waits, limit = config["memory"], container["resources"]["limits"]["memory"]
    assert waits.endswith("m") and limit.endswith("Mi")
    assert int(limit.removesuffix("Mi")) * MIB >= 2 * int(waits.removesuffix("m")) * MIB


def test_the_proxy_has_time_to_answer_what_it_has_read(pod, container):
    """docs/rolling-restarts.md: it exits at most 3 s after the longest timeout of a backend, 1 s by default."""
    sleep_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > sleep_s + 1 + 3


def test_the_image_has_the_user_of_the_pod(pod):
    containerfile = (ROOT / "packaging/Containerfile").read_text()
    user = pod["spec"]["securityContext"]["runAsUser"]
    assert f"\nUSER {user}:{user}\n" in containerfile


@pytest.mark.parametrize("probe", ["readinessProbe", "livenessProbe"])
def test_the_proxy_serves_the_probe(container, tmp_path, probe):
    request = container[probe]["httpGet"]
    assert request["port"] == "metrics"
    (port, metrics), file = free_ports(2), tmp_path / "proxy.toml"
    with cache_servers(1) as servers:
        pool = f'[[pools]]\nname = "default"\nservers = ["127.0.0.1:{servers[0]}"]\n'
        file.write_text(f'listen = "127.0.0.1:{port}"\nmetrics = "127.0.0.1:{metrics}"\n{pool}')
        with running_proxy(file):
            until("the probe succeeds", lambda: status(f"http://127.0.0.1:{metrics}{request['path']}") < 300)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status
    except HTTPError as error:
        return error.code
