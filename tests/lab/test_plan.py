"""Plans: complete blocks, reproducible from the seed, mirrored if the design says so."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from waylab.plan import make_plan, trial_as_dict
from waylab.spec import Design, Factor, Level, Spec, at_scale


def a_spec(clients, replicas, **design) -> Spec:
    factors = (
        Factor("clients", tuple(Level(str(n), (("load.clients", n),)) for n in range(1, clients + 1))),
        Factor(
            "replicas", tuple(Level(str(n), (("system.proxy.replicas", n),)) for n in range(1, replicas + 1))
        ),
    )
    return Spec(name="x", factors=factors, design=Design(**design))


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 1000),
    st.sampled_from(["random", "mirrored"]),
)
def test_every_block_runs_every_configuration_once_in_an_order_set_by_the_seed(
    clients, replicas, blocks, seed, order
):
    spec = a_spec(clients, replicas, blocks=blocks, seed=seed, order=order)
    plan = make_plan(spec)
    assert plan == make_plan(spec)
    assert len({trial.id for trial in plan.trials}) == len(plan.trials) == clients * replicas * blocks
    assert [trial.order for trial in plan.trials] == list(range(1, len(plan.trials) + 1))
    every = {trial.configuration for trial in plan.trials}
    for block in range(1, blocks + 1):
        names = [trial.configuration for trial in plan.trials if trial.block == block]
        assert len(names) == len(every) and set(names) == every


def test_mirrored_blocks_are_abba():
    plan = make_plan(a_spec(4, 1, blocks=4, order="mirrored"))
    names = [[t.configuration for t in plan.trials if t.block == block] for block in (1, 2, 3, 4)]
    assert names[1] == names[0][::-1] and names[3] == names[2][::-1]


def test_levels_become_settings_and_ids_and_seeds_do_not_depend_on_the_order():
    plan = make_plan(a_spec(3, 2, blocks=2, seed=1))
    for trial in plan.trials:
        assert trial.load.clients == int(dict(trial.levels)["clients"])
        assert trial.system.proxy.replicas == int(dict(trial.levels)["replicas"])
    longer = {trial.id: trial.seed for trial in make_plan(a_spec(3, 2, blocks=3, seed=1)).trials}
    assert all(longer[trial.id] == trial.seed for trial in plan.trials)
    assert plan.trials[0].id.startswith("b01-clients-")


def test_another_seed_gives_another_order():
    orders = {tuple(t.id for t in make_plan(a_spec(6, 2, seed=seed)).trials) for seed in range(5)}
    assert len(orders) == 5


def test_quick_is_one_short_block():
    spec = a_spec(2, 2, blocks=5)
    plan = make_plan(at_scale(spec, "quick"))
    assert len(plan.trials) == 4 and plan.trials[0].load.test_time_s == 1.0
    assert plan.expected_s < make_plan(spec).expected_s


def test_planned_trials_are_written_as_plain_values():
    spec = a_spec(1, 1)
    spec = dataclasses.replace(spec, load=dataclasses.replace(spec.load, think_time="exp:2ms"))
    content = trial_as_dict(make_plan(spec).trials[0])
    assert content["load"]["think_mean_s"] == 0.002
    assert content["system"]["backends"]["service_mean_s"] == 0.0
