"""Dates: the same as Babel writes, unambiguous, reproducible, held-out days apart."""

from datetime import date

import numpy as np
import pytest
from babel.dates import format_date, format_skeleton

from regard.data.corpus import build_corpus
from regard.data.dates import FIRST, HELD_OUT, LAST, LOCALES, Dates, templates
from regard.errors import InputError, UnknownNameError
from regard.text.tokenizer_training import train_tokenizer


def pairs(count, **options):
    rows = Dates(count, **options)
    return [tuple(field.decode() for field in row.fields) for row in rows]


DAYS = [date(2024, 2, 29), date(1900, 1, 1), date(2099, 12, 31), date(2021, 3, 4)]


def test_a_day_in_some_languages_by_hand():
    written = {template.write(date(2021, 3, 4)) for template in templates(LOCALES)}
    assert {"March 4, 2021", "Donnerstag, 4. März 2021", "2021년 3월 4일 목요일"} <= written
    assert {"4 de marzo de 2021", "2021年3月4日", "04.03.2021"} <= written


@pytest.mark.parametrize("locale", ["en", "de", "ko", "vi", "th", "ar", "fa"])
def test_every_format_writes_what_babel_writes(locale):
    ours = {template.pattern: template for template in templates((locale,))}
    assert len(ours) >= 3
    for day in DAYS:
        widths = [format_date(day, width, locale) for width in ("short", "medium", "long", "full")]
        keys = ["yMd", "yMMMd", "yMMMMd", "yMMMEd"]
        skeletons = [format_skeleton(key, day, locale=locale) for key in keys]
        for template in ours.values():
            assert template.write(day) in widths + skeletons


def test_no_written_date_means_two_days():
    meant: dict[str, date] = {}
    step = np.arange(FIRST.toordinal(), LAST.toordinal(), 397)
    ways = templates((*LOCALES, "hr", "fr_CA", "en_ZA", "lt"))
    for day in map(date.fromordinal, step.tolist()):
        for template in ways:
            assert meant.setdefault(template.write(day), day) == day


def test_ambiguous_formats_are_left_out():
    alone = {template.pattern for template in templates(("en",))}
    assert "M/d/y" in alone
    assert "M/d/y" not in {template.pattern for template in templates(("en", "fr"))}
    # a Polish and a Croatian month share the name "lis", for November and for October
    polish = {template.pattern for template in templates(("pl",))}
    both = {one.pattern for one in templates(("pl", "hr")) if one.locale == "pl"}
    assert both <= polish


def test_pairs_are_always_the_same_and_seeds_differ():
    first = pairs(1500, seed=3)
    assert len(first) == 1500
    assert pairs(1100, seed=3) == first[:1100]
    assert pairs(50, seed=4) != first[:50]
    assert [row.line for row in Dates(1030)] == list(range(1, 1031))


def test_every_target_is_an_iso_date_of_the_span_and_every_language_is_there():
    found = pairs(4000)
    days = [date.fromisoformat(iso) for _, iso in found]
    assert all(FIRST <= day <= LAST for day in days)
    assert {day.month for day in days} == set(range(1, 13))
    for mark in ("년", "年", "февр", "März", "März", "tháng", "Φεβρουαρίου"):
        assert any(mark in written for written, _ in found)


def test_held_out_days_never_occur_in_training():
    trained = {iso for seed in (0, 1) for _, iso in pairs(8000, seed=seed)}
    held_out = {iso for _, iso in pairs(5000, seed=2, split="held-out")}
    assert not trained & held_out
    every_day = LAST.toordinal() - FIRST.toordinal() + 1
    assert len(held_out) == pytest.approx(
        every_day / HELD_OUT * (1 - np.exp(-5000 * 20 / every_day)), rel=0.1
    )


def test_dates_become_a_corpus_without_any_file(tmp_path):
    dates = Dates(300)
    tokenizer = train_tokenizer((text for pair in pairs(2000) for text in pair), kind="characters")
    corpus = build_corpus(dates, tokenizer, cache=tmp_path)
    assert tuple(map(tokenizer.decode, corpus[42])) == pairs(43)[42]
    assert dates.fingerprint() == Dates(300).fingerprint()
    others = [
        Dates(301),
        Dates(300, seed=1),
        Dates(300, split="held-out"),
        Dates(300, locales=("ko",)),
    ]
    assert len({one.fingerprint() for one in [dates, *others]}) == 5


def test_one_language_alone_and_a_single_pair_are_enough():
    ((written, iso),) = pairs(1, locales=("ko",))
    assert iso[:4] in written


def test_invalid_settings_are_refused(no_shape_checks):
    with pytest.raises(UnknownNameError, match="unknown locale 'xx_YY'; the nearest"):
        Dates(1, locales=("xx_YY",))
    with pytest.raises(UnknownNameError, match="split is 'test'; choose one of train, held-out"):
        Dates(1, split="test")
    with pytest.raises(InputError, match="a count of 1 or more and at least one locale"):
        Dates(0)
    with pytest.raises(InputError, match="a count of 1 or more and at least one locale"):
        Dates(1, locales=())
