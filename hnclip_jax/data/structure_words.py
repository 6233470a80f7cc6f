"""Words of looks, which edge maps do not show: what the text filter of StructXLIP leaves out.

Of our own choosing. A word that as often names a thing, a place or a deed stays in the caption,
because taking that out hurts more than a colour that is left: no "down", "felt", "fine", "glass",
"paper", "fur", "lace", "canvas", "soft", "hard", "spotted", "rose", "peach", "lime", "cream",
"charcoal". "Orange", "violet", "golden", "brick", "stone" and "iron" are on the lists, because
captions mostly mean the look. All is lower case; a blank stands for blanks or hyphens.
"""


def _words(table: str) -> tuple[str, ...]:
    return tuple(" ".join(word.split()) for word in table.split(",") if word.strip())


LISTS = {
    "colours": _words("""
        red, orange, yellow, green, blue, purple, violet, pink, brown, black, white, grey, gray,
        reds, yellows, blues, purples, pinks,
        scarlet, crimson, maroon, burgundy, vermilion, magenta, fuchsia, mauve, indigo,
        turquoise, teal, cyan, aqua, aquamarine, azure, cerulean, ultramarine, navy, cobalt,
        chartreuse, beige, tan, khaki, taupe, ochre, ocher, sepia, amber, ivory, tawny, auburn,
        blond, blonde, golden, gold, silver, silvery,
        reddish, yellowish, greenish, bluish, purplish, pinkish, brownish, blackish, whitish,
        greyish, grayish, orangish,
        black and white, monochrome, monochromatic, multicolor, multicolour, multicolored,
        multicoloured, colorful, colourful, bicolor, bicolour, tricolor, tricolour
    """),
    "materials": _words("""
        wood, wooden, plywood, oaken, mahogany, teak, wicker, rattan,
        metal, metallic, steel, stainless steel, iron, cast iron, wrought iron, aluminum, aluminium,
        brass, bronze, copper, chrome, titanium, pewter,
        stone, sandstone, limestone, marble, granite, alabaster, brick, concrete, cement, stucco,
        adobe, plaster, clay, terracotta, ceramic, porcelain,
        plastic, vinyl, acrylic, fiberglass, fibreglass, styrofoam, polystyrene, rubber, latex,
        cardboard, leather, suede, cotton, wool, woolen, woollen, linen, silk, silken, satin,
        velvet, denim, corduroy, tweed, flannel, cashmere, nylon, polyester, spandex, burlap, velour
    """),
    "textures": _words("""
        smooth, rough, coarse, bumpy, lumpy, grainy, gritty, textured, ribbed,
        shiny, glossy, lustrous, glittery, sparkly, shimmery, shimmering, matte, satiny, polished,
        unpolished, glazed, varnished, lacquered, brushed metal, frosted, pearly,
        fluffy, fuzzy, furry, hairy, woolly, downy, feathery, velvety, silky, plush, spongy,
        leathery, rubbery, slimy, sticky, slippery, greasy, rusty, rusted, weathered, dusty,
        wrinkled, wrinkly, crinkled, crinkly,
        striped, stripy, pinstriped, checkered, chequered, plaid, tartan, gingham, polka dot,
        polka dotted, dotted, speckled, flecked, mottled, marbled, floral, flowered, paisley,
        herringbone, houndstooth, camouflage, tie dye, tie dyed, patterned, knitted, woven, quilted,
        crocheted, embroidered
    """),
    # How descriptions of insects name colour and sheen; what they say of build and hair stays.
    "insects": _words("""
        aeneous, aenescent, albescent, argenteous, argillaceous, atrous, aurantiacous, aureous,
        badious, brunneous, brunnescent, caerulescent, caesious, carneous, castaneous, cerinous,
        chalybeous, chalybeate, cinereous, cinerascent, citrinous, coccineous, croceous, cupreous,
        cyaneous, cyanescent, eburneous, ferruginous, flavous, flavescent, fulvous, fulvescent,
        fuliginous, fumate, fuscous, fuscescent, fuscopiceous, fuscotestaceous, glaucous, griseous,
        griseofuscous, hyaline, hyalinous, infuscate, infuscated, isabelline, lacteous, lateritious,
        luteous, lutescent, melleous, miniaceous, murinous, nigrescent, nigropiceous, niveous,
        ochraceous, ochreous, olivaceous, pallescent, pellucid, piceous, piceorufous, plumbeous,
        prasinous, purpureous, purpurascent, rubescent, rubiginous, rufous, rufescent, rufopiceous,
        rufotestaceous, sanguineous, smaragdine, stramineous, subhyaline, submetallic, subopaque,
        sulfureous, sulphureous, testaceous, umbrinous, vinaceous, violaceous, virescent,
        viridescent, vitreous,
        iridescent, opalescent, pearlescent, nacreous, metallic, lustrous, shining, glossy,
        sericeous, pruinose, pruinescent, pollinose, powdery, translucent, transparent, opaque,
        semitransparent, tawny, reddish, yellowish, brownish, blackish, whitish, greenish, bluish
    """),
}
"""Name of a list -> its words."""

SHADES = _words("""
    light, lighter, dark, darker, bright, pale, deep, vivid, pastel, neon, burnt, muted, dull, off,
    brightly, lightly, darkly, vividly
""")
"""What goes with a colour: "dark green", "brightly coloured". Left alone without one."""

THINGS = _words("""
    baby, bottle, brick, butter, cherry, chocolate, coffee, copper, coral, cream, emerald, fire,
    forest, grass, honey, hot, jade, jet, kelly, lavender, lemon, lilac, lime, midnight, mint,
    mustard, olive, peach, pea, plum, powder, rose, royal, ruby, rust, salmon, sand, sapphire, sea,
    sky, slate, snow, steel, straw, wine
""")
"""Things that lend a colour their name: "sky blue", "cream coloured". Left alone without one."""

STOPWORDS = frozenset(
    _words("""
        a, an, the, this, that, these, those, some, any, each, all, both, it, its, he, she, they,
        his, her, their, there, here, is, are, was, were, be, been, being, has, have, had, do, does,
        of, in, on, at, by, to, for, from, with, without, into, onto, over, under, as, and, or, but,
        not, no, so, than, then, which, who, what, where
    """)
)
"""Words that carry no content, when it is counted how much a filtered caption still says."""
