"""Captions cut into sentences."""

import pytest

from hnclip_jax.data import sentences

CASES = {
    "A red kite. It hangs in a tree.": ["A red kite", "It hangs in a tree"],
    "No stop at the end": ["No stop at the end"],
    "A wall of 3.5 m. It is 2.": ["A wall of 3.5 m", "It is 2"],
    "A tree.The sky is blue.": ["A tree", "The sky is blue"],
    "It says www.example.com in red. Below, .jpg": [
        "It says www.example.com in red",
        "Below, .jpg",
    ],
    "The U.S. Navy at 5 p.m. sails. Mr. Smith, e.g. waves.": [
        "The U.S. Navy at 5 p.m. sails",
        "Mr. Smith, e.g. waves",
    ],
    "St. Mary smiles. West. best. vs. rest": ["St. Mary smiles", "West", "best", "vs. rest"],
    "One... two.. three. . .": ["One", "two", "three"],
    'It says "Stop." Behind it (a hill.) Then "Go" shines.': [
        'It says "Stop',
        "Behind it (a hill",
        'Then "Go" shines',
    ],
    '"Stop" is written. \'tis red': ['"Stop" is written', "'tis red"],
    "Two\nlines. Größe: 寸. ünd klein.": ["Two\nlines", "Größe: 寸", "ünd klein"],
    "Is it? Yes! It is.": ["Is it? Yes! It is"],
    "": [],
    " . ... - ": [],
}


@pytest.mark.parametrize("caption", CASES)
def test_split(caption):
    found = sentences.split(caption)
    assert found == CASES[caption]
    assert all(sentence in caption for sentence in found)
