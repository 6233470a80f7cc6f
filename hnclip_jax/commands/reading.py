"""How a command's file of weights is read: the flags that convert, inspect and eval share."""

from absl import flags

from hnclip_jax import groups
from hnclip_jax.models import presets


def define_flags(values: flags.FlagValues) -> None:
    """Adds what a file may leave open, and changes to its positions."""
    flags.DEFINE_string(
        "preset",
        "",
        "what the weights are, where no config lies beside them: a preset, or open_clip's name "
        "such as ViT-B-32-quickgelu",
        flag_values=values,
    )
    flags.DEFINE_string(
        "adapter",
        "",
        "LoRA or DoRA to put on the weights: adapter.safetensors of a run, or a folder of peft",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "activation",
        "",
        ("", *presets.ACTIVATIONS),
        "the activation, where no config lies beside them",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "stretch",
        "0",
        ("0", "248"),
        "248 stretches 77 text positions by Long-CLIP's rule",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "context_length",
        0,
        "use the first text positions only; 0 = all",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "image_size",
        0,
        "resize the image positions for pictures of so many pixels; 0 = as they are",
        lower_bound=0,
        flag_values=values,
    )


def group(values: flags.FlagValues, **options: str) -> groups.ModelGroup:
    """Returns the config group that says the same as the flags."""
    return groups.ModelGroup(
        preset=values.preset,
        activation=values.activation,
        adapter=values.adapter,
        stretch=int(values.stretch),
        context_length=values.context_length,
        image_size=values.image_size,
        **options,
    )
