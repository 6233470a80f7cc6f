"""config: checks, round trips, and differences."""

import dataclasses
import json

import pytest

from hnclip_jax import config, groups, types
from hnclip_jax.models import presets


def test_defaults_round_trip_through_json_and_config_dict():
    made = config.from_config_dict(config.defaults())
    assert made == config.Config()
    assert config.from_json(config.to_json(made)) == made


def test_every_field_has_a_line_of_documentation_and_a_default_that_passes_its_check():
    for group in dataclasses.fields(config.Config):
        for field in dataclasses.fields(group.type):
            assert field.metadata["doc"], f"{group.name}.{field.name}"
            assert field.type in (int, float, str, bool, tuple)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optim": {"learning_rat": 1.0}}, "learning_rat"),
        ({"optim": {"weight_deca": 1.0}}, "did you mean 'weight_decay'"),
        ({"optin": {}}, "did you mean 'optim'"),
        ({"optim": {"schedule": "cosin"}}, "did you mean 'cosine'"),
        ({"optim": {"lr": -1.0}}, "optim.lr is -1.0"),
        ({"optim": {"lr": float("nan")}}, "optim.lr is nan"),
        ({"train": {"steps": 1.5}}, "train.steps is 1.5, but needs a value of type int"),
        ({"train": {"steps": True}}, "train.steps is True"),
        ({"train": {"steps": 5, "epochs": 2}}, "both set"),
        ({"train": {"global_batch_size": 10, "micro_batches": 3}}, "not divisible"),
        ({"train": {"global_batch_size": 4, "micro_batches": 4}}, "no negatives"),
        ({"train": {"global_batch_size": 1}}, "at least 2"),
        ({"train": {"best_metric": "eval/t2i_r@1"}}, "needs eval.data"),
        ({"model": {"init": "wieghts"}}, "did you mean 'weights'"),
        ({"model": {"stretch": 77}}, "unknown value of model.stretch '77'; valid: 0, 248"),
        ({"model": {"stretch": -1}}, "unknown value of model.stretch '-1'"),
        ({"model": {"activation": "swish"}}, "'swish'; valid: gelu, quick_gelu"),
        ({"model": {"init": "random", "weights": "a.pt"}}, "model.weights names 'a.pt'"),
        ({"model": {"init": "random", "stretch": 248}}, "model.stretch is 248"),
        ({"model": {"init": "random", "activation": "gelu"}}, "model.activation is 'gelu'"),
        ({"optim": {"freeze_first_positions": -1}}, "optim.freeze_first_positions is -1"),
        ({"model": {"init": "random", "adapter": "a"}}, "model.adapter is 'a'"),
        ({"loss": {"gamma_by_epoch": (0.0, "0.5")}}, "needs a number per epoch"),
        ({"data": {"fraction": 0.0}}, "data.fraction is 0, but must be above 0"),
        ({"data": {"fraction": 1.5}}, "data.fraction is 1.5"),
        ({"method": {"adapter": "lora", "adapter_alpha": 0.0}}, "adapter_alpha is 0"),
        ({"method": {"adapter": "lorra"}}, "did you mean 'lora'"),
        ({"loss": {"kind": "siglp"}}, "did you mean 'siglip'"),
        ({"parallel": {"process_index": 1}}, "count from 0"),
        ({"parallel": {"process_count": 2}}, "coordinator"),
        ({"eval": {"every_steps": 1, "every_epochs": 1}}, "both set"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_mistake_is_one_clear_line(values, message):
    with pytest.raises(types.UserError) as caught:
        config.from_config_dict(values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_may_leave_the_weights_to_the_command_line_but_a_run_may_not():
    made = config.from_config_dict({"model": {"init": "weights", "weights": ""}})
    with pytest.raises(types.UserError) as caught:
        config.check_start(made.model)
    assert "set model.weights=PATH, or model.init=random" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"init": "random"},
        {"weights": "a.pt"},
        {"weights": "a.pt", "stretch": 248, "activation": "quick_gelu"},
    ],
    ids=["random", "weights", "weights changed"],
)
def test_a_run_may_start_from(values):
    config.check_start(config.from_config_dict({"model": values}).model)


@pytest.mark.parametrize(
    "values",
    [{"weights": "a.pt"}, {"stretch": 248}, {"activation": "gelu"}],
    ids=lambda values: next(iter(values)),
)
def test_a_start_that_was_put_together_by_hand_is_checked_too(values):
    with pytest.raises(types.UserError, match=f"model.{next(iter(values))}"):
        config.check_start(groups.ModelGroup(init="random", **values))


def test_the_activations_of_the_settings_are_those_of_the_models():
    fields = {field.name: field for field in dataclasses.fields(groups.ModelGroup)}
    assert fields["activation"].metadata["choices"] == ("", *presets.ACTIVATIONS)


def test_values_from_json_keep_their_types():
    made = config.from_config_dict(json.loads('{"optim": {"lr": 1, "freeze": ["a", "b"]}}'))
    assert made.optim.lr == 1.0
    assert isinstance(made.optim.lr, float)
    assert made.optim.freeze == ("a", "b")


def test_differences_names_the_fields():
    other = config.from_config_dict({"optim": {"lr": 2e-6}, "log": {"every_steps": 7}})
    assert config.differences(config.Config(), other) == {
        "optim.lr": (1e-3, 2e-6),
        "log.every_steps": (50, 7),
    }


def test_a_long_list_of_names_is_cut_and_counted():
    assert types.at_most_ten(["a", "b"], "; ") == "a; b"
    assert types.at_most_ten(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
