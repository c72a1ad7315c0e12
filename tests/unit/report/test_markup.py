"""HTML is escaped unless it is markup."""

import pytest

from actsafe.report.markup import Html, count, join, number, percent, table, tag

SCRIPT = "<script>alert('&')</script>"


def test_text_is_escaped_and_markup_is_not():
    inner = tag("b", SCRIPT)
    assert inner == "<b>&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;</b>"
    assert tag("p", inner, 3, None, ["a", ("<", Html("<br>"))]) == f"<p>{inner}3a&lt;<br></p>"


def test_attributes_are_escaped_and_named():
    assert tag("p", class_="a", data_count=3, title='"><script>', hidden=True, id=None, lang=False) == (
        '<p class="a" data-count="3" title="&quot;&gt;&lt;script&gt;" hidden></p>'
    )
    assert tag("meta", name="x", content="y") == '<meta name="x" content="y">'


def test_what_is_joined_is_markup():
    assert isinstance(join(["<", tag("i", "x")]), Html)
    assert join(["<", tag("i", "x")]) == "&lt;<i>x</i>"


def test_cells_know_their_columns():
    drawn = table(["seed", "cost", "return", "upright"], [[SCRIPT, 1, 2, "<"]])
    assert 'data-label="upright">&lt;</td>' in drawn
    assert 'class="stack"' in drawn
    assert SCRIPT not in drawn
    assert "stack" not in table(["a", "b"], [[1, 2]])
    with pytest.raises(ValueError, match="zip"):
        table(["a", "b"], [[1, 2, 3]])


def test_numbers_are_for_people():
    unknown, minus = "\u2013", "\u2212"
    assert [number(value) for value in (None, float("nan"), float("inf"))] == [unknown, unknown, "unbounded"]
    assert [number(value) for value in (-1.5, 0, 12345.678)] == [f"{minus}1.5", "0", "12,346"]
    assert [percent(value) for value in (None, 0.0, 1.0, 0.0362)] == [unknown, "0 %", "100 %", "3.6 %"]
    assert [count(value, "seed") for value in (1, 2, 1200)] == ["1 seed", "2 seeds", "1,200 seeds"]
