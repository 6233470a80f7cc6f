"""An adapter of a run as a folder that peft puts on a CLIPModel of transformers.

    python -m tools.adapter_to_peft runs/lora/weights/adapter.safetensors lora-peft --base=NAME

The CLIPModel must have the weights that the adapter was trained on; `hnclip convert BASE FOLDER
--to=huggingface` writes them. A peft folder has no place for logit_scale, so that is printed.
"""

import pathlib
import sys

from absl import app, flags

from hnclip_jax import types
from hnclip_jax.weights import adapter_file, peft

_BASE = flags.DEFINE_string("base", "", "name or path of the CLIPModel, for adapter_config.json")


def main(argv: list[str]) -> None:
    """Writes the folder, prints its files."""
    if len(argv) != 3:
        sys.exit("adapter_to_peft: needs ADAPTER and FOLDER; see --help")
    source, target = (pathlib.Path(argument).expanduser() for argument in argv[1:])
    try:
        found = adapter_file.read(source)
        written = peft.write(
            target,
            found.arrays,
            rank=found.rank,
            alpha=found.alpha,
            dora=found.dora,
            base=_BASE.value,
        )
    except types.UserError as error:
        sys.exit(f"adapter_to_peft: {error}")
    if (scale := found.note.get("logit_scale")) is not None:
        print(f"not in the folder: logit_scale {scale:.6g} of the run", file=sys.stderr)
    print("\n".join(map(str, written)))


if __name__ == "__main__":
    app.run(main)
