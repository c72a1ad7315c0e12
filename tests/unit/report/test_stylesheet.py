"""The page can be read in either scheme."""

import re

import pytest

from actsafe.report import stylesheet

LEAST_CONTRAST = 4.5
"""Of text, after WCAG 2 (AA)."""
PAIRS = [("--ink", "--paper"), ("--soft", "--paper"), ("--soft", "--ground"), ("--link", "--paper")]
PAIRS += [(f"--{state}", f"--{state}-ground") for state in ("safe", "unsafe", "unproven", "unknown")]
PAIRS += [("--ink", "--unknown-ground"), ("--fig-333333", "--fig-ffffff")]


def schemes() -> list[dict[str, str]]:
    found = re.findall(r":root\{([^}]*)\}", stylesheet.stylesheet())
    return [dict(re.findall(r"(--[\w-]+):(#[0-9a-fA-F]{6});", rules)) for rules in found]


def luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_reckoned_as_it_should_be():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    # The grey that is known for just failing on white.
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("pair", PAIRS, ids="-on".join)
def test_text_stands_out(number, pair):
    colours = schemes()[number]
    assert contrast(colours[pair[0]], colours[pair[1]]) >= LEAST_CONTRAST


def test_both_schemes_have_the_same_variables():
    light, dark = schemes()
    assert light.keys() == dark.keys()
    used = set(re.findall(r"var\((--[\w-]+)\)", stylesheet.stylesheet()))
    assert used <= light.keys()
