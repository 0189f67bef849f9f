"""Designs: the combinations that run, invalid designs, and the same experiment at another scale."""

from itertools import product

import pytest

from waylab.analysis.statistics.designs import two_level_plan
from waylab.errors import LabError
from waylab.plan import make_plan, trial_as_dict
from waylab.spec import read_spec, spec_as_dict

HEAD = (
    'name = "x"\nquestion = "q"\nhypothesis = "h"\nrefuted_by = [{ metric = "failed_trials", above = 0 }]\n'
)
TWO = "[factors]\nclients = [1, 8]\nreplicas = [1, 2]\n"
FOUR = '[factors]\nclients = [1, 8]\nreplicas = [1, 2]\n"proxy.loops" = [1, 2]\npipeline = [1, 4]\n'


def read(tmp_path, text, scale="full"):
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    return read_spec(path, scale)


def levels_of(plan):
    """The levels of the first block, as sorted tuples of labels."""
    return sorted(tuple(label for _, label in trial.levels) for trial in plan.trials if trial.block == 1)


def test_excluded_combinations_do_not_run_and_may_be_invalid(tmp_path):
    text = (
        "[factors]\nclients = [1, 8, 64]\nreplicas = [1, 2, 4]\n"
        "[design]\nexclude = [{ replicas = 4 }, { clients = [1, 8], replicas = 2 }]"
    )
    assert levels_of(make_plan(read(tmp_path, text))) == [("1", "1"), ("64", "1"), ("64", "2"), ("8", "1")]
    # Four replicas need four servers: without the exclusion the specification is refused.
    with pytest.raises(LabError, match="replicas = 4: more than the 3 backends"):
        read(tmp_path, text.partition("[design]")[0])


def test_listed_trials_may_name_levels_and_settings(tmp_path):
    text = (
        "[factors.arm]\nnear = { loops = 1 }\nfar = { loops = 2 }\n[design]\nkind = 'listed'\nblocks = 2\n"
        "[[design.trials]]\narm = 'near'\nclients = 4\n[[design.trials]]\narm = 'far'\nclients = 64\n"
    )
    spec = read(tmp_path, text)
    plan = make_plan(spec)
    assert levels_of(plan) == [("far", "64"), ("near", "4")] and len(plan.trials) == 4
    assert {(t.load.clients, t.system.proxy.loops) for t in plan.trials} == {(4, 1), (64, 2)}
    assert spec_as_dict(spec)["design"]["trials"][0] == {"arm": ["near"], "clients": ["4"]}
    assert [factor.name for factor in spec.factors] == ["arm", "clients"]


@pytest.mark.parametrize(
    "generators", [["D=ABC"], ["pipeline = clients * replicas * proxy.loops"], ["D = -B*A"]]
)
def test_the_plan_and_the_analysis_have_the_same_fraction(tmp_path, generators):
    spec = read(tmp_path, f"{FOUR}[design]\nkind = '2k-p'\ngenerators = {generators}")
    two = two_level_plan([factor.name for factor in spec.factors], spec.design.generators)
    wanted = sorted(
        tuple(factor.levels[int(sign > 0)].label for factor, sign in zip(spec.factors, row, strict=True))
        for row in two.signs
    )
    assert levels_of(make_plan(spec)) == wanted and len(wanted) == 8
    kept = spec_as_dict(spec)["design"]
    assert kept["kind"] == "2k-p" and kept["generators"] == spec.design.generators


def test_a_full_two_level_design(tmp_path):
    plan = make_plan(read(tmp_path, f"{FOUR}[design]\nkind = '2k'"))
    assert levels_of(plan) == sorted(product(("1", "8"), ("1", "2"), ("1", "2"), ("1", "4")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TWO}[design]\nkind = '3k'", "design.kind = '3k': should be one of crossed, listed, 2k, 2k-p"),
        (
            f"{TWO}[design]\nexclude = [{{ client = 1 }}]",
            "design.exclude[0].client: is not a factor; did you mean clients?",
        ),
        (
            f"{TWO}[design]\nexclude = [{{ clients = 2 }}]",
            "design.exclude[0].clients = '2': is not a level of clients",
        ),
        (f"{TWO}[design]\nexclude = {{ clients = 1 }}", "design.exclude: should be a list of tables"),
        (f"{TWO}[design]\nexclude = [{{}}]", "design.exclude: should be a list of tables"),
        (f"{TWO}[design]\nexclude = [{{ clients = [1, 8] }}]", "design.exclude: leaves nothing to run"),
        (
            f"{TWO}[design]\nkind = '2k'\nexclude = [{{ clients = 1 }}]",
            "design.exclude: only for design.kind",
        ),
        ("[factors]\nclients = [1, 2, 3]\n[design]\nkind = '2k'", "factor clients has 3 levels, not two"),
        ("[design]\nkind = '2k'", "needs 1 to 16 factors, not 0"),
        (f"{TWO}[design]\ngenerators = ['B=A']", "design.generators: needs design.kind"),
        (f"{FOUR}[design]\nkind = '2k-p'", "design.generators: is missing"),
        (
            f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['D=AX']",
            "'D=AX' should read like D=ABC or D=-A*B, of A clients",
        ),
        (f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['DABC']", "'DABC' should read like"),
        (f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['D=A']", "'D=A' should read like"),
        (f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['D=AAB']", "'D=AAB' names a factor twice"),
        (f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['D=AD']", "'D=AD' names a factor twice"),
        (
            f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['D=AB', 'D=BC']",
            "generates a factor that another generator generates",
        ),
        (
            f"{FOUR}[design]\nkind = '2k-p'\ngenerators = ['D=AB', 'C=AD']",
            "'C=AD' uses D, which is itself generated",
        ),
        (f"{TWO}[design]\nkind = 'listed'", "design.trials: is missing"),
        (f"{TWO}[design]\ntrials = [{{ clients = 1, replicas = 1 }}]", "design.trials: needs design.kind"),
        (
            f"{TWO}[design]\nkind = 'listed'\ntrials = [{{ clients = 1 }}]",
            "design.trials[0]: does not name a level of replicas",
        ),
        (
            "[design]\nkind = 'listed'\ntrials = [{ clints = 1 }]",
            "factors.clints is not a setting; did you mean clients?",
        ),
        (
            "[design]\nkind = 'listed'\ntrials = [{ clients = 1 }, { clients = 1 }]",
            "names a combination twice",
        ),
        (
            "[design]\nkind = 'listed'\ntrials = [{ clients = 1, loops = 1 }, { clients = 2 }]",
            "design.trials[1]: does not name a level of loops",
        ),
        (f"{TWO}[scale.fast]\nblocks = 1", "scale.fast: there is only scale.quick"),
        (
            f"{TWO}[scale.quick]\nblock = 1",
            "scale.quick.block: is no setting of a scale; did you mean blocks?",
        ),
        (f"{TWO}[scale.quick]\nblocks = 0", "scale.quick.blocks = 0: should be between 1 and 1000"),
        (f"{TWO}[scale.quick]\nclients = [2]", "is not a level of clients; its levels: 1, 8"),
        (
            f"{TWO}[design]\nkind = '2k'\n[scale.quick]\nclients = [1]",
            'at scale quick: design.kind = "2k": factor clients has 1 levels',
        ),
        (
            f"{TWO}[scale.quick]\nclients = [1]\n[[compare]]\nfactor = 'clients'\nbaseline = 1\ncandidate = 8",
            "at scale quick: scale.quick.clients: leaves out '8'",
        ),
        (f"{TWO}[stopping]\nblocks_max = 6", "stopping.precision: is missing"),
        (
            f"{TWO}[stopping]\nprecision = 0.1\nblocks_min = 6\nblocks_max = 5",
            "stopping.blocks_max = 5: below",
        ),
        (
            f"{TWO}[stopping]\nprecision = 0.1\nmetrics = ['speed']",
            "stopping.metrics = ['speed']: should be throughput_per_s",
        ),
        (
            f"{TWO}[predict]\ncalibrate = [{{ clints = 1 }}]",
            "predict.calibrate[0].clints: is not a factor; did you mean clients?",
        ),
        (
            f"{TWO}[predict]\ncalibrate = [{{ clients = 1 }}]\nheld_out = [{{ replicas = 1 }}]",
            "predict: clients=1, replicas=1 is both",
        ),
        (
            f"{TWO}[design]\nexclude = [{{ clients = 8 }}]\n[predict]\nheld_out = [{{ clients = 8 }}]",
            "selects no configuration of the design",
        ),
        (
            f"{TWO}[design]\nexclude = [{{ clients = 8 }}]\n"
            "[[compare]]\nfactor = 'clients'\nbaseline = 1\ncandidate = 8",
            "so there is nothing to compare",
        ),
    ],
)
def test_an_invalid_design_raises_one_line(tmp_path, text, message):
    with pytest.raises(LabError) as caught:
        read(tmp_path, text)
    line = str(caught.value)
    assert message in line and "\n" not in line and line.startswith(str(tmp_path / "x.toml"))


def test_the_quick_scale_is_the_same_experiment_with_fewer_trials(tmp_path):
    text = (
        "[load]\ntest_time_s = 10\n[factors]\nclients = [1, 8, 64]\nreplicas = [1, 2]\n[design]\nblocks = 9\n"
        "[predict]\ncalibrate = [{ clients = 1 }, { clients = 8 }]\n"
        "[scale.quick]\nblocks = 2\ntest_time_s = 4.0\nclients = [1, 64]\n"
    )
    full, quick = read(tmp_path, text), read(tmp_path, text, "quick")
    plan = make_plan(quick)
    assert len(make_plan(full).trials) == 54 and len(plan.trials) == 8
    assert plan.trials[0].load.test_time_s == 4.0 and plan.trials[0].load.warm_up_s == full.load.warm_up_s
    # A trial has the same seed at every scale.
    seeds = {trial.id: trial.seed for trial in make_plan(full).trials}
    assert all(seeds[trial.id] == trial.seed for trial in plan.trials)
    assert [f["levels"][-1]["label"] for f in spec_as_dict(quick)["factors"]] == ["64", "2"]
    # The quick scale has dropped the level of one pattern.
    assert spec_as_dict(quick)["predict"] == {"calibrate": [{"clients": ["1"]}], "held_out": []}


def test_roles_of_configurations_are_in_the_plan(tmp_path):
    factors = "[factors]\nclients = [1, 8, 64]\n"
    cases = [
        ("calibrate = [{ clients = 1 }]", {"1": "calibration", "8": "held-out", "64": "held-out"}),
        ("held_out = [{ clients = [8, 64] }]", {"1": "calibration", "8": "held-out", "64": "held-out"}),
        (
            "calibrate = [{ clients = 1 }]\nheld_out = [{ clients = 64 }]",
            {"1": "calibration", "8": "", "64": "held-out"},
        ),
        ("", {"1": "", "8": "", "64": ""}),
    ]
    for text, wanted in cases:
        plan = make_plan(read(tmp_path, f"{factors}[predict]\n{text}"))
        assert {dict(t.levels)["clients"]: trial_as_dict(t)["role"] for t in plan.trials} == wanted


def test_a_stopping_rule_plans_the_maximum_number_of_blocks(tmp_path):
    spec = read(tmp_path, f"{TWO}[design]\nblocks = 2\n[stopping]\nprecision = 0.1\nblocks_max = 7")
    assert max(trial.block for trial in make_plan(spec).trials) == 7
