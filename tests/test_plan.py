"""Planning: chips, the search for the largest batch, and the command as a whole, on CPU meshes."""

import json
import math
import pathlib
import re
import warnings
from unittest import mock

import jax
import pytest
from jax.experimental import topologies

from hnclip_jax import config, types
from hnclip_jax.models import presets
from hnclip_jax.parallel import mesh as mesh_lib
from tools import plan, plan_chips, plan_largest, plan_program, plan_step


@pytest.fixture(autouse=True)
def eight_devices():
    """Makes them first: a process that has none yet would give the tool as many as it asks for."""
    return jax.devices()


@pytest.mark.parametrize(
    ("need", "limit", "expected", "within"),
    [
        (lambda n: 2.0 + 0.5 * n, 50.0, 96, 8),
        (lambda n: 2.0 + 0.01 * n + 0.001 * n * n, 50.0, 216, 16),
        (lambda n: None if n > 100 else 1.0 + 0.001 * n, 50.0, 100, 16),
        (lambda n: 40.0 + n, 50.0, 8, 0),
        (lambda n: 60.0, 50.0, 0, 0),
    ],
    ids=["line", "curve", "too much to tell", "below the start", "nothing fits"],
)
def test_the_largest_size_is_found(need, limit, expected, within):
    tried = []

    def seen(size):
        tried.append(size)
        return need(size)

    found = plan_largest.largest(seen, 32, 8, limit)
    assert expected - within <= found <= expected
    assert len(tried) == len(set(tried)) <= 6
    assert all(size % 8 == 0 for size in tried)


def test_a_size_that_fills_the_memory_ends_the_search():
    tried = []
    need = lambda size: tried.append(size) or float(size)  # noqa: E731
    assert plan_largest.largest(need, 98, 1, 100.0) == 98
    assert tried == [98]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("v9:2x2", "unknown chip 'v9'"),
        ("v5:4x4", "unknown chip 'v5'; did you mean 'v5p'?|'v5e'?"),
        ("v5e", "'v5e' has no shape"),
        ("v5e:16", "'v5e:16' has no shape"),
        ("v5e:0x4", "'v5e:0x4' has no shape"),
        ("cpu:2x2", "'cpu:2x2' has no shape"),
        ("cpu:4096", "'cpu:4096' needs 4096 devices, but this process has 8"),
    ],
)
def test_a_wrong_topology_is_one_line(name, complaint):
    with pytest.raises(types.UserError, match=complaint) as caught:
        plan_chips.find([name])
    assert "\n" not in str(caught.value)


def test_without_libtpu_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(plan_chips.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(types.UserError, match=r"pip install 'hnclip_jax\[plan\]'"):
        plan_chips.find(["v5e:16x16"])


def test_a_tpu_topology_is_asked_for_as_its_chip_needs(monkeypatch):
    asked = []

    def describe(name, **options):
        asked.append((name, options))
        if name == "v5e:5x3":
            raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: not divisible\nand more")
        return topologies.TopologyDescription(jax.devices()[:4])

    monkeypatch.setattr(plan_chips.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(topologies, "get_topology_desc", describe)
    for key in plan_chips._ENVIRONMENT:
        monkeypatch.setenv(key, "")
    v4, v5e = plan_chips.find(["v4:2x2x1", "v5e:2x2"])
    assert asked == [
        ("v4:2x2x1", {"platform": "tpu", "chip_config_name": "megacore"}),
        ("v5e:2x2", {"platform": "tpu"}),
    ]
    assert v4.devices == v5e.devices == tuple(jax.devices()[:4])
    assert v5e.memory == int(15.75 * 2**30)
    assert plan_chips.find(["v5e:2x2"], memory=5)[0].memory == 5
    with pytest.raises(types.UserError, match="refuses topology 'v5e:5x3': INVALID_ARGUMENT: not"):
        plan_chips.find(["v5e:5x3"])


def test_programs_never_get_more_than_the_chip_has():
    # A gibibyte is left to the sheet's rounding: v5p's 95 are its 95.73.
    assert all(chip.usable < chip.memory + 1 for chip in plan_chips.CHIPS.values())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (16.00G) exceeds available HBM (15.75G). HLO "
            "module: jit_step.\nSee https://openxla.org for more details.",
            "out of memory: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (16.00G) exceeds available HBM (15.75G). ",
        ),
        ("INTERNAL: it broke\nhere", "the compiler gives up: INTERNAL: it broke"),
    ],
    ids=["memory", "other"],
)
def test_what_the_compiler_says_becomes_one_line(message, told):
    assert plan_step._compiler_fault(message) == told


@pytest.fixture(scope="module")
def command(write_config, tmp_path_factory):
    """Runs the tool on the small model: words -> (rows of the JSON file)."""
    folder = tmp_path_factory.mktemp("plan")
    path = write_config(folder / "small.py", {"parallel.fsdp": 2, "train.global_batch_size": 32})

    def run(*words):
        out = folder / "out.json"
        with mock.patch.dict(presets.PRESETS), warnings.catch_warnings():
            # ml_collections loads config files in a way that Python will drop.
            warnings.filterwarnings("ignore", "the load_module", DeprecationWarning)
            plan.main(["plan", f"--config={path}", f"--out={out}", *words])
        return json.loads(out.read_text())

    return run


@pytest.fixture(scope="module")
def planned(command):
    """The rows of remat none, compared with gamma 0, and of remat full."""
    none = command("--topology=cpu:8", "--remat=none", "--nolargest")
    return none + command("--topology=cpu:8", "--remat=full", "--nolargest", "--noboost")


def test_sizes_are_those_of_one_device(planned, small_config):
    from hnclip_jax.models import dual_encoder
    from hnclip_jax.parallel import sharding

    mesh = mesh_lib.create(config.Config(parallel=_parallel(fsdp=2)).parallel, jax.devices()[:8])
    shapes = dual_encoder.create(small_config).abstract_params()
    places = sharding.state_shardings(mesh, shapes)
    own = sum(
        4 * math.prod(place.shard_shape(leaf.shape))
        for leaf, place in zip(jax.tree.leaves(shapes), jax.tree.leaves(places), strict=True)
    )
    whole = 4 * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    row = planned[0]
    assert own < 0.7 * whole  # fsdp splits most of them in two.
    assert (row["topology"], row["devices"], row["per_chip"]) == ("cpu:8", 8, 4)
    assert row["parameters"] == own
    assert 2 * own <= row["optimizer"] < 2 * own + 100
    # Four pictures, captions, and for each two ids and a flag.
    assert row["batch"] == 4 * (24 * 24 * 3 + 77 * 4 + 4 + 4 + 1)
    assert row["peak"] >= row["parameters"] + row["optimizer"] + row["temporaries"] > 0


def test_remat_trades_flops_for_memory(planned):
    none, full = planned
    assert (none["remat"], full["remat"]) == ("none", "full")
    assert none["fault"] == full["fault"] == ""
    assert full["flops"] > 1.1 * none["flops"]
    # The kernels of two layers are gathered in both towers.
    assert none["collectives"]["all-gather"]["count"] > 2 * 2 * 6


def test_the_boost_costs_one_product_and_no_exchange(planned):
    none, full = planned
    plain = none["gamma_0"]
    assert full["gamma_0"] is None
    assert none["collectives"] == plain["collectives"]
    # G of four captions against thirty-two, of width 8.
    assert none["flops"] - plain["flops"] == 2 * 4 * 32 * 8


def test_the_table_shows_figures_and_faults():
    cpus = plan_chips.Target("cpu:8", tuple(jax.devices()[:8]), 10**9)
    traffic = {"all-gather": plan_program.Traffic(3, 2 * 10**6)}
    made = plan_step.Figures(parameters=2 * 10**8, peak=5 * 10**8, flops=10**12, seconds=2.0)
    made = made._replace(collectives=traffic)
    plans = [
        plan.Plan(plan_step.Case(cpus, 4, "none"), plan_step.Figures("no room"), None, 0),
        plan.Plan(plan_step.Case(cpus, 4, "full"), made, made._replace(flops=8 * 10**11), 16),
    ]
    text = plan.table(plans)
    lines = {line[:26].strip(): line[26:].split() for line in text.splitlines()}
    assert lines["per device, remat"] == ["none", "full"]
    assert lines["parameters, GB"] == ["-", "0.200"]
    assert lines["peak, % of 1.00 GB"] == ["-", "50.0"]
    assert lines["all-gather, count: GB"] == ["-", "3:", "0.002"]
    assert lines["boost: FLOPs, %"] == ["-", "+25.000"]
    assert lines["boost: collectives"] == ["-", "the", "same"]
    assert lines["largest batch per chip"] == ["none", "fits", "16"]
    assert text.splitlines()[-1] == "none: no room"


@pytest.mark.parametrize(
    ("settings", "size", "complaint"),
    [
        (
            {"parallel.fsdp": 3},
            2,
            r"parallel.data \(-1\) x parallel.fsdp \(3\) does not give the 8",
        ),
        ({"train.micro_batches": 4}, 3, "a batch of 24 pairs cannot be split evenly over 8 dev"),
        ({"train.gradient_cache": 4}, 3, "a batch of 24 pairs cannot be split evenly over 8 dev"),
        ({"model.preset": "tinny"}, 2, "'tinny'; did you mean 'tiny'"),
        ({"method.name": "clap"}, 2, "'clap'"),
    ],
    ids=["mesh", "batch", "cached batch", "preset", "method"],
)
def test_what_does_not_fit_is_a_fault_of_one_line(settings, size, complaint):
    values = config.defaults()
    values.model.preset = "tiny"
    values.update_from_flattened_dict(settings)
    told = []
    planner = plan_step.Planner(config.from_config_dict(values), told.append)
    case = plan_step.Case(plan_chips.find(["cpu:8"])[0], size, "none")
    assert re.search(complaint, planner.figures(case).fault)
    assert planner.figures(case) is planner.figures(case)
    assert len(told) == 1
    assert "\n" not in told[0]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "needs --config and --topology"),
        (["--config=configs/demo.py"], "needs --config and --topology"),
        (["--config=configs/nowhere.py", "--topology=cpu:8"], "configs/nowhere.py"),
        (["--config=configs/demo.py", "--topology=cpu:8", "--remat=ful"], "did you mean 'full'"),
        (["--config=configs/demo.py", "--topology=cpu:8", "more"], "does not understand 'more'"),
        (["--config=configs/demo.py", "--topology=cpu:8", "--per_chip=-1"], "--per_chip"),
        (["--config=configs/demo.py", "--topology=cpu:7"], "over the 7 devices of cpu:7"),
        (["--config=configs/list.py", "--topology=cpu:8"], "model.preset is empty"),
        (
            ["--config=configs/demo.py", "--topology=cpu:8", "--config.parallel.mapper=pmap"],
            "plan with mapper='mesh'",
        ),
    ],
    ids=["nothing", "topology", "file", "remat", "word", "size", "devices", "preset", "pmap"],
)
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
def test_a_mistake_is_one_line(words, complaint, monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parent.parent)
    with pytest.raises(types.UserError) as caught:
        plan.main(["plan", *words])
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_help_tells_the_flags_and_an_example(capsys):
    plan.main(["plan", "--help"])
    told = capsys.readouterr().out
    assert "python tools/plan.py --config=" in told
    for flag in ("topology", "per_chip", "remat", "largest", "boost", "rules", "memory_gb", "out"):
        assert f"{flag}:" in told


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
def test_rules_are_printed_and_nothing_is_compiled(capsys, monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parent.parent)
    monkeypatch.setattr(plan_step.Planner, "figures", None)
    words = ["--config=configs/demo.py", "--topology=cpu:8", "--config.parallel.fsdp=4", "--rules"]
    plan.main(["plan", *words])
    told = capsys.readouterr().out
    assert "cpu:8: 8 devices, fsdp 4" in told
    assert re.search(r"text/token_embedding +\d+ x \d+ +axis \d in 4", told)
    assert "MB per device" in told.splitlines()[-1]


def _parallel(**fields):
    from hnclip_jax import groups

    return groups.ParallelGroup(**fields)
