"""Specifications with roles and generators of their own: what they resolve to, and the line for each mistake."""

import pytest
from own_system import HEAD

from waylab.errors import LabError
from waylab.plan import make_plan, trial_as_dict
from waylab.spec import read_spec
from waylab.spec.arms import arms_spec, program_key, read_arm
from waylab.spec.naming import resolved, short
from waylab.spec.roles.placeholders import filled, filled_words, placeholders

CACHE = """
[system]
kind = "command"
[system.roles.cache]
program = "memcached"
arguments = "-l {address} -p {port} -t {threads}"
set = { threads = 1 }
"""
GENERATOR = """
[system.generator]
kind = "command"
program = "pgbench"
arguments = "-c {clients} -T {total_s} -p {cache.port}"
adapter = "pgbench"
"""
FRONT = '[system.roles.front]\nprogram = "front"\narguments = "{cache.endpoint}"\n'
EXTERNAL = '[system]\nkind = "external"\naddresses = ["10.0.0.7:11211"]\n'


def spec_of(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[system]\nkind = "command"', r"system\.roles: is missing; .*has a table \[system\.roles\.NAME\]"),
        (CACHE.replace("roles.cache", "roles.Cache"), r"system\.roles: 'Cache' should be small letters"),
        (
            CACHE.replace("roles.cache", "roles.proxy"),
            r"system\.roles\.proxy: is a name that the lab uses itself",
        ),
        (
            CACHE.replace("roles.cache", "roles.load2"),
            r"system\.roles\.load2: is a name that the lab uses itself",
        ),
        (CACHE.replace('program = "memcached"', ""), r"system\.roles\.cache\.program: is missing"),
        (CACHE.replace("program", "programm"), r"system\.roles\.cache\.programm is not a key; did you mean"),
        (
            CACHE.replace("{threads}", "{thread}"),
            r"cache\.arguments: \{thread\} is no placeholder; known here: .*threads",
        ),
        (
            CACHE.replace("{threads}", "'"),
            r"cache\.arguments = .*: cannot be split into words: No closing quotation",
        ),
        (CACHE.replace("threads =", "port ="), r"cache\.set\.port: the lab itself sets \{port\}"),
        (
            CACHE.replace("threads = 1", "threads = []"),
            r"cache\.set\.threads = \[\]: should be a number, text",
        ),
        (CACHE + 'ready = { line = "(" }', r"cache\.ready\.line = '\(': is no regular expression"),
        (CACHE + 'ready = { line = "a", http = "/" }', r"cache\.ready: has both line and http"),
        (
            CACHE + 'ready = { http = "health" }',
            r"cache\.ready\.http = 'health': should be a path such as /health",
        ),
        (
            CACHE + 'stop = { signal = "KILL" }',
            r"cache\.stop\.signal = 'KILL': should be the name of a signal",
        ),
        (
            CACHE + 'stop = { signal = "SIGTREM" }',
            r"cache\.stop\.signal = 'SIGTREM': should be the name of a signal",
        ),
        (CACHE + 'metrics = "{address}/metrics"', r"cache\.metrics = .*: should begin with http://"),
        (CACHE + 'files = { "../x" = "" }', r"cache\.files: '\.\./x' should be a name of a file"),
        (CACHE + "port = 11211\ncount = 2", r"cache\.port = 11211: another instance has the same port"),
        (
            CACHE + "port = 11211\n" + FRONT + "port = 11211",
            r"front\.port = 11211: system\.roles\.cache has the same port",
        ),
        (
            CACHE + FRONT + 'environment = { TO = "{cache.each}" }',
            r"front\.environment\.TO: \{cache\.each\} repeats a word of a command; here write \{cache\.endpoints\}",
        ),
        (CACHE + 'hosts = ["far"]', r"system\.roles\.cache\.hosts: 'far' is not one of testbed\.hosts"),
        (
            CACHE + FRONT.replace("{cache", "{front"),
            r"front\.arguments: \{front\.endpoint\} is no placeholder",
        ),
        (
            CACHE.replace('"command"', '"command"\ntarget = "front"'),
            r"system\.target = 'front': is no role; known: cache",
        ),
        (
            CACHE.replace('"command"', '"command"\nprogram = "x"'),
            r"system\.program: is a waystage that runs parts",
        ),
        (
            CACHE + '[factors]\n"roles.cash.set.threads" = [1, 2]',
            r"roles\.cash\.set\.threads: has no 'cash'; known: cache",
        ),
        (
            CACHE + '[factors]\n"roles.cache.set.thread" = [1, 2]',
            r"set\.thread: has no 'thread'; known: threads",
        ),
        (
            CACHE + '[factors]\n"roles.cache.programs" = ["a", "b"]',
            r"factors\.roles\.cache\.programs is not a setting",
        ),
        (
            CACHE + '[factors]\n"roles.cache.count" = [0, 1]',
            r"factors\.roles\.cache\.count = 0: should be between",
        ),
        (CACHE + GENERATOR.replace('adapter = "pgbench"', ""), r"system\.generator\.adapter: is missing"),
        (CACHE + GENERATOR.replace("{clients}", "2"), r"generator\.arguments: has no \{clients\}"),
        (CACHE + GENERATOR.replace("{total_s}", "2"), r"generator\.arguments: has no \{total_s\}"),
        (
            CACHE + GENERATOR.replace("{cache.port}", "{port.x}"),
            r"generator\.arguments: \{port\.x\} is no placeholder",
        ),
        (
            CACHE + GENERATOR + "[factors]\ndata_size = [1, 2]",
            r"load\.data_size = 1: has no effect, because system\.generator has no \{data_size\}",
        ),
        (
            CACHE + GENERATOR.replace('kind = "command"', ""),
            r"generator\.program: needs .*kind = \"command\"",
        ),
        (
            CACHE + GENERATOR + '[assignment]\nload = ["a", "b"]',
            r"assignment\.load: .* is one load generator",
        ),
        ('[system]\nkind = "external"', r"system\.addresses: is missing"),
        (EXTERNAL.replace(":11211", ""), r"system\.addresses = .*'10\.0\.0\.7' should be HOST:PORT"),
        (EXTERNAL.replace("11211", "99999"), r"system\.addresses = .* should be HOST:PORT"),
        (EXTERNAL + FRONT, r"system\.roles: needs system\.kind = \"command\""),
        (CACHE + '[[compare]]\nfactor = "x"\nmetric = "cpu_per_request_ns.cash"', r"compare\[0\]"),
    ],
)
def test_each_mistake_is_one_line(tmp_path, text, message):
    with pytest.raises(LabError, match=message) as error:
        read_spec(spec_of(tmp_path, text))
    assert "\n" not in str(error.value)


def test_levels_are_values_and_programs_of_a_role(tmp_path):
    text = (
        CACHE
        + FRONT
        + '[factors]\n"roles.cache.set.threads" = [1, 4]\n"system.roles.cache.program" = ["a", "b"]'
    )
    spec = read_spec(spec_of(tmp_path, text))
    assert [factor.name for factor in spec.factors] == ["cache.threads", "cache.program"]
    trials = make_plan(spec).trials
    found = {
        (trial.system.roles["cache"].set["threads"], trial.system.roles["cache"].program) for trial in trials
    }
    assert found == {(1, "a"), (1, "b"), (4, "a"), (4, "b")}
    content = trial_as_dict(trials[0])
    assert content["system"]["description"]["programs"] == {"front": 1, "cache": 1}
    assert content["assignment"]["cache"] == ()


def test_a_role_runs_on_its_hosts(tmp_path):
    text = CACHE + 'hosts = ["one", "two"]\ncount = 2\nport = 11211\n[testbed.hosts]\none = {}\ntwo = {}'
    (trial,) = make_plan(read_spec(spec_of(tmp_path, text))).trials
    assert trial.assignment.of("cache") == ("one", "two")
    assert trial_as_dict(trial)["assignment"]["cache"] == ("one", "two")


def test_a_rule_may_name_the_cpu_time_of_a_role(tmp_path):
    rule = '[[refuted_by]]\nmetric = "cpu_per_request_ns.cash"\nof = { "cache.threads" = 1 }\nabove = 1'
    path = spec_of(tmp_path, CACHE + '[factors]\n"roles.cache.set.threads" = [1, 4]\n')
    path.write_text(
        path.read_text().replace('refuted_by = [{ metric = "failed_trials", above = 0 }]', "") + rule
    )
    with pytest.raises(LabError, match=r"needs the role cash; there is cache, interrupts, load and total"):
        read_spec(path)
    path.write_text(path.read_text().replace(".cash", ".cache"))
    assert read_spec(path).refuted_by[0].metric == "cpu_per_request_ns.cache"


def test_two_binaries_are_the_sides_of_a_comparison(tmp_path):
    path = spec_of(tmp_path, CACHE)
    key = program_key(path)
    assert key == "system.roles.cache.program"
    sides = []
    for name in ("old", "new"):
        program = tmp_path / name
        program.write_text("")
        sides.append(read_arm(str(program), name, key))
    name, text = arms_spec(path, tuple(sides), ("throughput_per_s",), 0.05, {})
    written = tmp_path / f"{name}.toml"
    written.write_text(text)
    trials = make_plan(read_spec(written)).trials
    assert {dict(trial.levels)["version"]: trial.system.roles["cache"].program for trial in trials} == {
        "a": str(tmp_path / "old"),
        "b": str(tmp_path / "new"),
    }


def test_a_binary_alone_does_not_say_which_of_several_roles_it_is_for(tmp_path):
    with pytest.raises(LabError, match=r"has the roles cache, front; .*--a roles\.cache\.program=PATH"):
        program_key(spec_of(tmp_path, CACHE + FRONT))


def test_placeholders_are_words_in_braces_only():
    text = '{a} {b.c} {{a}} { a } {A} {"a": 1} ${x}'
    assert placeholders(text) == ["a", "b.c", "x"]
    assert filled(text, {"a": 1, "b.c": 2, "x": 3}) == '1 2 {a} { a } {A} {"a": 1} $3'


def test_values_with_spaces_stay_one_word():
    values = {"a": "x y", "s.each": ["1:2", "3:4"]}
    assert filled_words("-o '{a} z' -s={s.each} end", values) == ["-o", "x y z", "-s=1:2", "-s=3:4", "end"]


def test_keys_of_the_generator_do_not_make_those_of_the_system_ambiguous():
    assert resolved("kind", "x") == "system.kind" and resolved("program", "x") == "system.program"
    assert resolved("generator.kind", "x") == "system.generator.kind"
    assert short("system.program") == "program" and short("generator.program") == "generator.program"
