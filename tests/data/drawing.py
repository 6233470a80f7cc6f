"""Pictures that tests draw, and the files they are in."""

import io

import numpy as np
from PIL import Image

RNG_SEED = 5


def file(image: Image.Image, kind: str, **options) -> bytes:
    """Returns the content of a picture file of a format."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int, height: int, seed: int = RNG_SEED) -> Image.Image:
    """Returns an RGB picture of which every pixel is another one."""
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def photo(seed: int, width: int = 160, height: int = 120) -> Image.Image:
    """Returns an RGB picture whose details fade as those of a photograph do."""
    rng = np.random.default_rng(seed)
    waves = np.fft.rfft2(rng.normal(size=(height, width, 3)), axes=(0, 1))
    down = np.fft.fftfreq(height)[:, None] * height
    right = np.fft.rfftfreq(width)[None] * width
    waves /= (1 + np.hypot(down, right))[..., None] ** 1.3
    pixels = np.fft.irfft2(waves, s=(height, width), axes=(0, 1))
    pixels = (pixels - pixels.mean()) / pixels.std() * 50 + 128
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
