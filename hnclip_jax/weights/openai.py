"""OpenAI CLIP's names, and Long-CLIP's: the same with a second table of text positions.

FineLIP saves Long-CLIP's tensors and its own aggregation module, which is left out here.
open_clip keeps these names too, so its layouts are made by `rules_for`.
"""

from hnclip_jax.weights import positions, rules

IGNORED = r"input_resolution|context_length|vocab_size|(.*\.)?attn_mask|mask[12]|cross_net\..*"
"""Numbers that repeat sizes, masks that are computed anyway, FineLIP's own module."""

_TWO_TABLES = rules.Form(positions.exchange_tails, positions.exchange_tails)


def rules_for(text: str = "") -> tuple[rules.Rule, ...]:
    """Returns the layout; names of the text tower begin with `text`."""
    return (
        *_tower("visual.", "image"),
        *_tower(text, "text"),
        rules.one("visual.conv1.weight", "image/patch_embed/kernel", rules.PATCHES),
        rules.one("visual.class_embedding", "image/class_embedding", rules.VECTOR),
        rules.one("visual.positional_embedding", "image/position_embedding", rules.TABLE),
        *rules.norm("visual.ln_pre", "image/ln_pre"),
        *rules.norm("visual.ln_post", "image/ln_post"),
        # Both projections are (width, embed_dim) already, unlike every other matrix.
        rules.one("visual.proj", "image/proj", rules.TABLE),
        rules.one(f"{text}token_embedding.weight", "text/token_embedding", rules.TABLE),
        rules.one(f"{text}positional_embedding", "text/position_embedding", rules.TABLE),
        *rules.norm(f"{text}ln_final", "text/ln_final"),
        rules.one(f"{text}text_projection", "text/proj", rules.TABLE),
        rules.one("logit_scale", "logit_scale", rules.SCALAR),
    )


def _tower(prefix: str, tower: str) -> tuple[rules.Rule, ...]:
    theirs = prefix + "transformer.resblocks.{layer}"
    ours = tower + "/blocks_{layer:02d}"
    joined = {
        kind: tuple(f"{ours}/attn/{name}/{kind}" for name in ("query", "key", "value"))
        for kind in ("kernel", "bias")
    }
    return (
        rules.Rule((f"{theirs}.attn.in_proj_weight",), joined["kernel"], rules.QUERY_KEY_VALUE),
        rules.Rule((f"{theirs}.attn.in_proj_bias",), joined["bias"], rules.QUERY_KEY_VALUE),
        *rules.dense(f"{theirs}.attn.out_proj", f"{ours}/attn/out"),
        *rules.norm(f"{theirs}.ln_1", f"{ours}/ln_1"),
        *rules.dense(f"{theirs}.mlp.c_fc", f"{ours}/mlp/fc_in"),
        *rules.dense(f"{theirs}.mlp.c_proj", f"{ours}/mlp/fc_out"),
        *rules.norm(f"{theirs}.ln_2", f"{ours}/ln_2"),
    )


OPENAI = rules_for()

LONGCLIP = tuple(
    rule._replace(
        theirs=("positional_embedding", "positional_embedding_res"),
        ours=("text/position_embedding", f"{rules.UNUSED}text/position_embedding"),
        form=_TWO_TABLES,
    )
    if rule.ours == ("text/position_embedding",)
    else rule
    for rule in OPENAI
)
