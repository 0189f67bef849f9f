"""Specifications: defaults, short names, and one line for every error, with a suggestion."""

import dataclasses

import pytest

from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.spec import (
    PROFILES,
    mean_of_variate_s,
    read_spec,
    resolve_key,
    size_bytes,
    spec_as_dict,
)

HEAD = (
    'name = "x"\nquestion = "q"\nhypothesis = "h"\nrefuted_by = [{ metric = "failed_trials", above = 0 }]\n'
)


def read(tmp_path, text, head=HEAD):
    path = tmp_path / "x.toml"
    path.write_text(head + text)
    return read_spec(path)


def test_the_smallest_specification_has_all_defaults(tmp_path):
    spec = read(tmp_path, "")
    assert (spec.system.kind, spec.system.backends.count, spec.load.clients, spec.design.blocks) == (
        "proxy",
        3,
        16,
        3,
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[load]\nclient = 3", "load.client is not a key; did you mean load.clients?"),
        ("[system.proxi]\nloops = 1", "system.proxi is not a key; did you mean system.proxy?"),
        ("[proxy]\nloops = 1", "proxy is not a key; did you mean system.proxy?"),
        ("[load]\nreplicas = 3", "load.replicas is not a key; did you mean system.proxy.replicas?"),
        ('[load]\nclients = "3"', "load.clients = '3': should be a whole number"),
        ("[load]\nclients = true", "load.clients = True: should be a whole number"),
        ("[load]\nclients = 0", "load.clients = 0: should be between 1 and 65536"),
        ('[load]\nratio = "1-9"', "load.ratio = '1-9': should be SET:GET"),
        ('[load]\nratio = "0:0"', "should be SET:GET"),
        (
            '[load]\nthink_time = "uniform:2ms:1ms"',
            "load.think_time = 'uniform:2ms:1ms': 'uniform:2ms:1ms' ends before",
        ),
        ('[load]\nthink_time = "pareto:1ms:1ms:1.2"', "has an infinite mean"),
        (
            '[load]\ndata_size = "uniform:3"',
            "load.data_size = 'uniform:3': 'uniform:3': uniform takes 2 parameters, not 1",
        ),
        ('[load]\ndata_size = "foo:3"', "foo is none of fixed, uniform, normal"),
        ('[load]\ndata_size = "big"', "'big' is not a size such as 128, 30.8 or 4k"),
        ("[load]\ndata_size = 0", "load.data_size = 0: should be between 1 and 1048576"),
        ('[load]\nkey_size = "list:30:x"', "load.key_size = 'list:30:x': 'x' is not a number"),
        (
            '[load]\nkey_pattern = "zipf"',
            "load.key_pattern = 'zipf': should be one of uniform, sequential, zipf:0.99",
        ),
        ('[load]\nkey_pattern = "hot:2:0.5"', "shares lie between 0 and 1"),
        (
            '[load]\nrate = 10\narrivals = "bursty:1s"',
            "load.arrivals = 'bursty:1s': should be one of constant",
        ),
        ('[load]\narrivals = "constant"', "load.arrivals = 'constant': needs load.rate"),
        (
            '[load]\nrate = 10\nthink_time = "exp:1ms"',
            "load.think_time = 'exp:1ms': an open loop does not wait for replies",
        ),
        ("[factors]\nrate = [100, -1]", "factors.rate = -1: should be from 0 up to"),
        ('[system.backends]\nservice_time = "exp:200"', "is not a duration"),
        ('[system.backends]\nservice_time = "uniform:2ms:1ms"', "ends before it begins"),
        ("[system.proxy]\nreplicas = 4", "more than the 3 backends"),
        ("[factors]\nreplicas = [1, 5]", "system.proxy.replicas = 5: more than the 3 backends"),
        (
            '[system.proxy]\ndispatch = "shred"',
            "system.proxy.dispatch = 'shred': should be one of pipelined, per-backend, shared",
        ),
        ("[system.proxy]\nreaders = 0", "system.proxy.readers = 0: should be between 1 and 1024"),
        (
            '[system.proxy]\nloops = 2\ndispatch = "per-backend"',
            "system.proxy.writers = 1: fewer than the 2 loops; each loop needs one",
        ),
        (
            '[system.proxy]\nloops = 4\ndispatch = "shared"\n[factors]\n"proxy.workers" = [8, 2]',
            "system.proxy.workers = 2: fewer than the 4 loops",
        ),
        (
            '[system.proxy]\ndispatch = "shared"\nmulti_get = "sharded"\nreplicas = 2',
            "system.proxy.multi_get = 'sharded': requests any key from any server; needs replicas = 3",
        ),
        (
            "[factors]\nworkers = [1]",
            "factors.workers is ambiguous: system.backends.workers or system.proxy.workers",
        ),
        ("[factors]\nclints = [1]", "factors.clints is not a setting; did you mean clients?"),
        ("[factors]\nsample = [1, 2]", "factors.sample is ambiguous: system.proxy.sample or load.sample"),
        ("[factors]\nclients = []", "factors.clients: should be a list of levels"),
        ("[factors]\nclients = [1, 1]", "factors.clients: names a level twice"),
        ('[factors]\nclients = [1, "two"]', "factors.clients = 'two': should be a whole number"),
        ("[factors.arm]\na = { kindd = 'direct' }", "factors.arm.a.kindd is not a setting"),
        ('[[compare]]\nfactor = "clients"', "compare[0].factor = 'clients'"),
        (
            '[factors]\nclients = [1, 2]\n[[compare]]\nfactor = "clients"\nbaseline = 1\ncandidate = 3',
            "compare[0].candidate = '3': is not a level of clients; its levels: 1, 2",
        ),
        (
            '[factors]\nclients = [1, 2]\n[[compare]]\nfactor = "clients"\nbaseline = 1\ncandidate = 2\nmetric = "x"',
            "compare[0].metric = 'x'",
        ),
        (
            '[factors]\nsystem = ["proxy"]\n[[compare]]\nrole = "null"\nfactor = "system"\nbaseline = "proxy"\n'
            'candidate = "proxy"',
            "compare[0].candidate = 'proxy': is the baseline itself",
        ),
        (
            "[gates]\nhit_ratio_min = 0.5",
            "gates.reason: is missing; hit_ratio_min is looser than the default",
        ),
        ('[report]\nx = "clients"', "report.x = 'clients': is not a factor"),
        ('[system.backends]\nserver = "memcached"\nservice_time = "exp:1ms"', 'only server = "embedded"'),
        ("[load]\nthreads = 20", "load.threads = 20: more than the 16 clients"),
        ("[load]\ntest_time_s = 0", "load.test_time_s = 0: should be above 0"),
        ("load = 3", "load: should be a table"),
        ('[testbed]\nkind = "remote"', "testbed.kind = 'remote': should be one of local, netns"),
        ("[testbed]\npin = true", "testbed.pin is not a key; did you mean testbed.pinning?"),
        ("[testbed]\nhosts = 3", "testbed.hosts: should be a table with a table for each host"),
        ("[testbed.host.a]\ncores = 1", "testbed.host is not a key; did you mean testbed.hosts?"),
        ("[testbed.hosts]\na = 3", "testbed.hosts.a: should be a table"),
        (
            "[testbed.hosts]\na = { up_mbits = 3 }",
            "testbed.hosts.a.up_mbits is not a key; did you mean testbed.hosts.a.up_mbit?",
        ),
        (
            "[testbed.hosts]\na = { delay_ms = -1 }",
            "testbed.hosts.a.delay_ms = -1: should be above 0 up to 10000",
        ),
        (
            "[testbed]\nkind = 'netns'\ntime_scale = 0.5",
            "testbed.time_scale = 0.5: should be from 1 up to 1000",
        ),
        (
            "[testbed]\ntime_scale = 20",
            'testbed.time_scale: only emulated hosts can be slower; set testbed.kind = "netns"',
        ),
        ("[testbed.hosts]\na = { up_mbit = 0 }", "testbed.hosts.a.up_mbit = 0: should be from 1 up to 30000"),
        ("[testbed.hosts]\na = { cores = true }", "testbed.hosts.a.cores = True: should be a number"),
        (
            '[testbed.hosts]\na = { profile = "x" }',
            "should be one of asl18-client, asl18-middleware, asl18-server",
        ),
        ("[testbed.hosts]\n'A b' = {}", "testbed.hosts: 'A b' should be small letters, digits and dashes"),
        ('[assignment]\nload = "a"', "assignment.load = 'a': should be a list of texts"),
        (
            '[testbed.hosts]\na = {}\n[assignment]\nload = ["b"]',
            "assignment.load: 'b' is not one of testbed.hosts; known: a",
        ),
        (
            '[testbed]\nkind = "netns"\nhosts.a = {}\n[assignment]\nload = ["a"]\nbackends = ["a"]',
            'assignment.proxy: is missing; testbed.kind = "netns" runs every role on a host of its own',
        ),
        (
            '[testbed.hosts]\na = {}\n[assignment]\nload = ["a", "a", "a"]\n[load]\nclients = 2',
            "load.clients = 2: fewer than one for each of 1 threads on 3 load generators",
        ),
        (
            '[testbed.hosts]\na = {}\n[assignment]\nload = ["a", "a"]\n[load]\nkey_maximum = 0',
            "load.key_maximum = 0: fewer keys than 2 load generators",
        ),
        ("a = [", "not TOML"),
    ],
)
def test_an_invalid_specification_raises_one_line_with_file_and_key(tmp_path, text, message):
    with pytest.raises(LabError) as caught:
        read(tmp_path, text)
    line = str(caught.value)
    assert message in line and str(tmp_path / "x.toml") in line and "\n" not in line


@pytest.mark.parametrize("missing", ["question", "hypothesis", "refuted_by"])
def test_question_hypothesis_and_refutation_are_required(tmp_path, missing):
    head = "\n".join(line for line in HEAD.splitlines() if not line.startswith(missing)) + "\n"
    with pytest.raises(LabError, match=f"{missing}: is missing"):
        read(tmp_path, "", head)


def test_a_missing_file_raises_one_line(tmp_path):
    with pytest.raises(LabError, match="no such specification"):
        read_spec(tmp_path / "none.toml")


def test_factors_by_short_name_dotted_name_and_named_levels(tmp_path):
    spec = read(tmp_path, '[factors]\nclients = [1, 2]\n"proxy.sample" = [5]\nsystem = ["proxy", "direct"]\n')
    assert [(factor.name, factor.key) for factor in spec.factors] == [
        ("clients", "load.clients"),
        ("proxy.sample", "system.proxy.sample"),
        ("system", "system.kind"),
    ]
    arms = read(
        tmp_path, "[factors.arm]\na = { kind = 'direct' }\nb = { stamps = 'off', loops = 2 }\n"
    ).factors[0]
    assert arms.key is None
    assert arms.levels[1].settings == (("system.proxy.stamps", "off"), ("system.proxy.loops", 2))


def test_slots_apply_only_to_their_discipline(tmp_path):
    def slots(text):
        return read(tmp_path, f"[system.proxy]\n{text}\n").system.proxy.slots()

    # A number of another discipline is allowed, because the discipline can be a factor.
    assert slots("loops = 4\nworkers = 2") == {}
    assert slots('dispatch = "per-backend"\nreaders = 8\nworkers = 2') == {"readers": 8, "writers": 1}
    assert slots('dispatch = "shared"\nworkers = 2\nmulti_get = "whole"\nreplicas = 3') == {"workers": 2}


def test_loosened_gates_are_named_with_their_reason(tmp_path):
    spec = read(tmp_path, '[gates]\ngenerator_cpu_max = 1.0\nverification = false\nreason = "why"\n')
    assert spec.gates.loosened() == ["generator_cpu_max", "verification"]
    assert read(tmp_path, "[gates]\ngenerator_cpu_max = 0.5\n").gates.loosened() == []


def test_quantities():
    assert mean_of_variate_s("none") == 0
    assert mean_of_variate_s("exp:200us") == pytest.approx(2e-4)
    assert mean_of_variate_s("uniform:100us:300us") == pytest.approx(2e-4)
    assert size_bytes("64m") == 64 << 20
    assert resolve_key("load.clients", ["load.clients"]) == "load.clients"


def test_hosts_inherit_missing_settings_from_their_profile(tmp_path):
    spec = read(
        tmp_path,
        '[testbed]\nkind = "netns"\n[testbed.hosts]\nc = { profile = "asl18-client", cores = 1, delay_ms = 2 }\n'
        's = {}\n[assignment]\nload = ["c", "c"]\nproxy = ["s"]\nbackends = ["s"]\n'
        '[factors.machines]\none = { "assignment.load" = ["c"] }\ntwo = { "assignment.load" = ["c", "s"] }\n',
    )
    client, server = spec.testbed.hosts["c"], spec.testbed.hosts["s"]
    assert (client.cores, client.up_mbit, client.down_mbit, client.delay_ms) == (1.0, 200.0, None, 2.0)
    assert (server.cores, server.up_mbit, server.profile) == (None, None, "")
    assert spec.assignment.generators == 2 and spec.assignment.hosts({"proxy": 1, "backends": 1}) == [
        "c",
        "s",
    ]
    assert spec_as_dict(spec)["testbed"]["hosts"]["c"]["profile"] == "asl18-client"
    assignments = {trial.levels: trial.assignment for trial in make_plan(spec).trials}
    assert (
        assignments[(("machines", "two"),)].load == ("c", "s")
        and assignments[(("machines", "one"),)].generators == 1
    )
    assert all(assignment.proxy == ("s",) for assignment in assignments.values())


def test_the_profiles_match_the_machines_of_the_study():
    machines = {
        name.removeprefix("asl18-"): (values["cores"], values["up_mbit"]) for name, values in PROFILES.items()
    }
    assert machines == {"client": (2, 200), "middleware": (4, 800), "server": (1, 100)}
