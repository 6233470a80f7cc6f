"""How a command's files become pixels: from flags, or from the config group."""

from absl import flags

from hnclip_jax import groups
from hnclip_jax.data import images


def define_flags(values: flags.FlagValues) -> None:
    """Adds the settings of the same names in group `data`."""
    flags.DEFINE_enum(
        "exif_orientation",
        "ignore",
        images.EXIF_ORIENTATION,
        "pictures with an EXIF orientation: as stored, which is how the reference code takes them, "
        "or turned upright",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "max_pixels",
        0,
        f"pictures with more pixels are refused; 0 = {images.MAX_PIXELS:,}",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_string(
        "transparency",
        "white",
        "colour that transparent pixels are laid on, a name or '#rrggbb'",
        flag_values=values,
    )


def options(source: groups.DataGroup | flags.FlagValues) -> images.Options:
    """Returns the options that a config group, or the flags of `define_flags`, say.

    Raises:
      types.UserError: if a value is none.
    """
    return images.Options(source.exif_orientation, source.max_pixels, source.transparency)
