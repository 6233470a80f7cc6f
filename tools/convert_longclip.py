"""Long-CLIP's PyTorch weights, and all other layouts, to any layout: `hnclip convert` by a name.

python -m tools.convert_longclip longclip-L.pt weights/longclip-L
python -m tools.convert_longclip runs/mine longclip-mine.pt --to=longclip
"""

import sys

from hnclip_jax import cli

if __name__ == "__main__":
    sys.exit(cli.main(["convert", *sys.argv[1:]]))
