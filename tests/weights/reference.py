"""Both towers in torch as OpenAI's and Long-CLIP's files name them: random weights, embeddings."""

import functools
import math
import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F

KEPT = 20
"""Rows of the first position table that Long-CLIP reads; the rest come from the second."""


class Sizes(NamedTuple):
    """Every size of a dual encoder. MLPs are four times as wide as their tower where not given."""

    vision_width: int
    vision_layers: int
    vision_heads: int
    patch: int
    image: int
    text_width: int
    text_layers: int
    text_heads: int
    context: int
    vocabulary: int
    embed: int
    vision_mlp: int | None = None
    text_mlp: int | None = None

    def numbers(self):
        """Returns the same sizes by the names of the package's ModelConfig, activation left out."""
        return {
            "vision_width": self.vision_width,
            "vision_layers": self.vision_layers,
            "vision_heads": self.vision_heads,
            "vision_mlp_width": self.vision_mlp or 4 * self.vision_width,
            "patch_size": self.patch,
            "text_width": self.text_width,
            "text_layers": self.text_layers,
            "text_heads": self.text_heads,
            "text_mlp_width": self.text_mlp or 4 * self.text_width,
            "embed_dim": self.embed,
            "image_size": self.image,
            "context_length": self.context,
            "vocab_size": self.vocabulary,
        }


# No two sizes of a tower are equal, and heads are 64 wide, as OpenAI's files imply.
SMALL = Sizes(128, 3, 2, 8, 32, 64, 2, 1, context=77, vocabulary=49408, embed=48)
SMALL_LONG = SMALL._replace(context=248)
B16 = Sizes(768, 12, 12, 16, 224, 512, 12, 8, context=248, vocabulary=49408, embed=512)
L14 = Sizes(1024, 24, 16, 14, 224, 768, 12, 12, context=248, vocabulary=49408, embed=768)


def state_dict(sizes, seed, *, tables=1, dtype=torch.float32, text_prefix=""):
    """Returns random tensors, no two alike, by the names of OpenAI's state dict.

    Args:
      sizes: of the model; L/14 takes a few seconds.
      seed: of the numbers, which do not depend on `dtype` and `text_prefix` but for rounding.
      tables: 2 adds Long-CLIP's second table of text positions; no number of it equals the first's.
      dtype: of all tensors.
      text_prefix: "text." for the names of open_clip's custom text towers.
    """
    draw = functools.partial(_draw, torch.Generator().manual_seed(seed), dtype)
    width = sizes.text_width
    positions = draw(sizes.context, width, std=0.3)
    text = {"positional_embedding": positions}
    if tables == 2:
        noise = draw(sizes.context, width, std=0.1)
        text["positional_embedding_res"] = positions + noise + 0.2 * noise.sign() + 0.1
    text["text_projection"] = draw(width, sizes.embed, std=width**-0.5)
    scale = draw(std=0.05, mean=math.log(100))

    width, mlp = sizes.vision_width, sizes.numbers()["vision_mlp_width"]
    visual = {
        "class_embedding": draw(width, std=0.5),
        "positional_embedding": draw((sizes.image // sizes.patch) ** 2 + 1, width, std=0.5),
        "proj": draw(width, sizes.embed, std=width**-0.5),
        "conv1.weight": draw(width, 3, sizes.patch, sizes.patch, std=(3 * sizes.patch**2) ** -0.5),
        **_norm(draw, "ln_pre", width),
        **_blocks(draw, width, mlp, sizes.vision_layers),
        **_norm(draw, "ln_post", width),
    }
    width, mlp = sizes.text_width, sizes.numbers()["text_mlp_width"]
    text |= _blocks(draw, width, mlp, sizes.text_layers)
    text["token_embedding.weight"] = draw(sizes.vocabulary, width, std=0.5)
    text |= _norm(draw, "ln_final", width)
    return {
        "logit_scale": scale,
        **{f"visual.{name}": tensor for name, tensor in visual.items()},
        **{f"{text_prefix}{name}": tensor for name, tensor in text.items()},
    }


def finelip_extra(embed, kept=39):
    """Returns what FineLIP's file holds besides Long-CLIP's tensors: its two aggregation modules.

    Only the prefix of the names and the kind of the shapes are FineLIP's.
    """
    draw = functools.partial(_draw, torch.Generator().manual_seed(embed), torch.float32)
    hidden = embed // 5
    extra = {}
    for modality in ("image", "text"):
        name = f"cross_net.{modality}_aggregation"
        extra |= {
            f"{name}.scale": draw(1, 1, 1, std=0.1, mean=1.0),
            **_norm(draw, f"{name}.norm", embed),
            **_dense(draw, f"{name}.weight.0", embed, hidden),
            **_dense(draw, f"{name}.weight.2", hidden, kept),
        }
    return extra


def _draw(generator, dtype, *shape, std, mean=0.0):
    return torch.empty(shape).normal_(mean, std, generator=generator).to(dtype)


def _norm(draw, name, width):
    return {
        f"{name}.weight": draw(width, std=0.2, mean=1.0),
        f"{name}.bias": draw(width, std=0.1),
    }


def _dense(draw, name, inputs, outputs):
    return {
        f"{name}.weight": draw(outputs, inputs, std=inputs**-0.5),
        f"{name}.bias": draw(outputs, std=0.1),
    }


def _blocks(draw, width, mlp, layers):
    tensors = {}
    for layer in range(layers):
        name = f"transformer.resblocks.{layer}"
        tensors |= {
            f"{name}.attn.in_proj_weight": draw(3 * width, width, std=width**-0.5),
            f"{name}.attn.in_proj_bias": draw(3 * width, std=0.1),
            **_dense(draw, f"{name}.attn.out_proj", width, width),
            **_norm(draw, f"{name}.ln_1", width),
            **_dense(draw, f"{name}.mlp.c_fc", width, mlp),
            **_dense(draw, f"{name}.mlp.c_proj", mlp, width),
            **_norm(draw, f"{name}.ln_2", width),
        }
    return tensors


def embed_image(state, sizes, pixels, activation):
    """Returns [B, D] float32 unit vectors of pixels [B, 3, height, width], float and normalised.

    Args:
      state: tensors of any floating type, in OpenAI's layout.
      sizes: of the model.
      pixels: tensor or numpy array.
      activation: "quick_gelu" or "gelu".
    """
    with torch.no_grad():
        weights = _Weights(state, "visual.")
        x = F.conv2d(_tensor(pixels).float(), weights["conv1.weight"], stride=sizes.patch)
        x = x.flatten(2).transpose(1, 2)
        class_token = weights["class_embedding"].expand(len(x), 1, -1)
        x = torch.cat([class_token, x], dim=1) + weights["positional_embedding"]
        x = _layer_norm(x, weights, "ln_pre")
        x = _run(x, weights, sizes.vision_layers, sizes.vision_heads, activation, mask=None)
        return F.normalize(_layer_norm(x[:, 0], weights, "ln_post") @ weights["proj"], dim=-1)


def embed_text(state, sizes, ids, activation):
    """Returns [B, D] float32 unit vectors of ids [B, S]; S up to the context length.

    Args:
      state: tensors of any floating type, in OpenAI's layout or with "text." before its names.
      sizes: of the model.
      ids: tensor or numpy array of integers.
      activation: "quick_gelu" or "gelu".
    """
    with torch.no_grad():
        weights = _Weights(state, "text." if "text.token_embedding.weight" in state else "")
        ids = _tensor(ids).long()
        length = ids.shape[1]
        positions = weights["positional_embedding"]
        if "positional_embedding_res" in weights.state:
            positions = torch.cat([positions[:KEPT], weights["positional_embedding_res"][KEPT:]])
        x = F.embedding(ids, weights["token_embedding.weight"]) + positions[:length]
        mask = torch.full((length, length), -math.inf).triu(1)
        x = _run(x, weights, sizes.text_layers, sizes.text_heads, activation, mask)
        # The end token has the largest id, so this is where it first stands.
        end = x[torch.arange(len(x)), ids.argmax(dim=-1)]
        features = _layer_norm(end, weights, "ln_final") @ weights["text_projection"]
        return F.normalize(features, dim=-1)


class _Weights(NamedTuple):
    """Tensors under a prefix, each turned to float32 when it is asked for and not kept."""

    state: dict
    prefix: str

    def __getitem__(self, name):
        return self.state[self.prefix + name].float()


def _tensor(x):
    return x if isinstance(x, torch.Tensor) else torch.tensor(x)


def _layer_norm(x, weights, name):
    return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)


def _linear(x, weights, name):
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _run(x, weights, layers, heads, activation, mask):
    for layer in range(layers):
        name = f"transformer.resblocks.{layer}"
        x = x + _attend(_layer_norm(x, weights, f"{name}.ln_1"), weights, name, heads, mask)
        hidden = _linear(_layer_norm(x, weights, f"{name}.ln_2"), weights, f"{name}.mlp.c_fc")
        x = x + _linear(_activate(hidden, activation), weights, f"{name}.mlp.c_proj")
    return x


def _attend(x, weights, name, heads, mask):
    x = x.transpose(0, 1)  # torch's own attention wants positions first.
    attended, _ = F.multi_head_attention_forward(
        *(x, x, x, x.shape[-1], heads),
        weights[f"{name}.attn.in_proj_weight"],
        weights[f"{name}.attn.in_proj_bias"],
        *(None, None, False, 0.0),
        weights[f"{name}.attn.out_proj.weight"],
        weights[f"{name}.attn.out_proj.bias"],
        training=False,
        need_weights=False,
        attn_mask=mask,
    )
    return attended.transpose(0, 1)


def _activate(x, activation):
    return {"quick_gelu": lambda: x * torch.sigmoid(1.702 * x), "gelu": lambda: F.gelu(x)}[
        activation
    ]()


class Module(torch.nn.Module):
    """A module that holds `state` by the same dotted names and computes both embeddings.

    It also has the three buffers with sizes that OpenAI's archives have. Tensors are not copied.
    """

    def __init__(self, state, sizes, activation="quick_gelu"):
        super().__init__()
        self._run = sizes, activation
        for name, tensor in state.items():
            *parents, last = name.split(".")
            module = self
            for parent in parents:
                if parent not in module._modules:
                    module.add_module(parent, torch.nn.Module())
                module = module._modules[parent]
            module.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
        self.register_buffer("input_resolution", torch.tensor(sizes.image))
        self.register_buffer("context_length", torch.tensor(sizes.context))
        self.register_buffer("vocab_size", torch.tensor(sizes.vocabulary))

    def forward(self, pixels, ids):
        """Returns the unit vectors of pictures and captions."""
        state, (sizes, activation) = dict(self.named_parameters()), self._run
        return (
            embed_image(state, sizes, pixels, activation),
            embed_text(state, sizes, ids, activation),
        )


def halved(state):
    """Returns `state` with float16 where OpenAI's archives for GPUs have it.

    That is in all matrices and their biases; tables, layer norms and the temperature stay.
    """
    parts = ("conv1.", ".attn.", ".mlp.")
    return {
        name: tensor.half()
        if any(part in name for part in parts) or name.endswith(("visual.proj", "text_projection"))
        else tensor
        for name, tensor in state.items()
    }


def save_torchscript(path, state, sizes, *, activation="quick_gelu", half=False):
    """Writes the TorchScript archive of a traced `Module`, as OpenAI publishes its models.

    Args:
      path: the file.
      state: tensors in OpenAI's layout.
      sizes: of the model; both towers run once on one picture and one caption.
      activation: of the code in the archive.
      half: see `halved`.
    """
    module = Module(halved(state) if half else state, sizes, activation).eval()
    pixels = torch.zeros(1, 3, sizes.image, sizes.image)
    ids = torch.zeros(1, sizes.context, dtype=torch.long)
    with warnings.catch_warnings():
        # torch means to drop TorchScript, and warns that the sizes become constants of the trace.
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, (pixels, ids), check_trace=False)
        torch.jit.save(traced, str(path))
