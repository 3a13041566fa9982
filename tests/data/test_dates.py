from datetime import date
from itertools import islice

import numpy as np
import pytest
from babel.dates import format_date, format_skeleton

from regard.data.corpus import build_corpus
from regard.data.dates import FIRST, HELD_OUT, LAST, LOCALES, Dates, templates
from regard.errors import InputError, UnknownNameError
from regard.text.tokenizer_training import train_tokenizer

DAYS = [date(2024, 2, 29), date(1900, 1, 1), date(2099, 12, 31), date(2021, 3, 4)]


def test_a_day_in_some_languages_by_hand():
    written = {template.write(date(2021, 3, 4)) for template in templates(LOCALES)}
    assert {"March 4, 2021", "Donnerstag, 4. März 2021", "2021년 3월 4일 목요일"} <= written
    assert {"4 de marzo de 2021", "2021年3月4日", "04.03.2021"} <= written


@pytest.mark.parametrize("locale", [*LOCALES, "th", "ar", "fa"])
def test_every_template_writes_what_babel_writes(locale):
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
    step = np.arange(FIRST.toordinal(), LAST.toordinal(), 97)
    ways = templates((*LOCALES, "hr", "fr_CA", "en_ZA", "lt"))
    for day in map(date.fromordinal, step.tolist()):
        for template in ways:
            assert meant.setdefault(template.write(day), day) == day


def test_ways_that_could_mean_two_days_are_left_out_only_together():
    alone = {template.pattern for template in templates(("en",))}
    assert "M/d/y" in alone
    assert "M/d/y" not in {template.pattern for template in templates(("en", "fr"))}
    # a Polish and a Croatian month share the name "lis", for November and for October
    polish = {template.pattern for template in templates(("pl",))}
    both = {one.pattern for one in templates(("pl", "hr")) if one.locale == "pl"}
    assert both <= polish


def test_pairs_are_always_the_same_and_seeds_differ():
    dates = Dates(50, seed=3)
    first = list(islice(dates.endless(), 3000))
    assert [dates.pair(number) for number in (0, 1, 2999)] == [first[0], first[1], first[2999]]
    assert list(islice(Dates(9, seed=3).endless(start=1000), 5)) == first[1000:1005]
    assert list(islice(Dates(50, seed=4).endless(), 50)) != first[:50]
    assert [row.fields for row in dates] == [
        (written.encode(), iso.encode()) for written, iso in first[:50]
    ]


def test_every_target_is_an_iso_date_of_the_span_and_every_language_is_there():
    pairs = list(islice(Dates(1).endless(), 4000))
    days = [date.fromisoformat(iso) for _, iso in pairs]
    assert all(FIRST <= day <= LAST for day in days)
    assert {day.month for day in days} == set(range(1, 13))
    for mark in ("년", "年", "февр", "März", "März", "tháng", "Φεβρουαρίου"):
        assert any(mark in written for written, _ in pairs)


def test_held_out_days_are_never_shown_in_training_whatever_the_seed():
    trained = {iso for seed in (0, 1) for _, iso in islice(Dates(1, seed=seed).endless(), 20_000)}
    held_out = {iso for _, iso in islice(Dates(1, seed=2, split="held-out").endless(), 5000)}
    assert not trained & held_out
    every_day = LAST.toordinal() - FIRST.toordinal() + 1
    assert len(held_out) == pytest.approx(
        every_day / HELD_OUT * (1 - np.exp(-5000 * 20 / every_day)), rel=0.1
    )


def test_dates_become_a_corpus_without_any_file(tmp_path):
    dates = Dates(300)
    tokenizer = train_tokenizer(
        (text for pair in islice(dates.endless(), 2000) for text in pair), kind="characters"
    )
    corpus = build_corpus(dates, tokenizer, cache=tmp_path)
    assert tuple(map(tokenizer.decode, corpus[42])) == dates.pair(42)
    assert dates.fingerprint() == Dates(300).fingerprint()
    others = [
        Dates(301),
        Dates(300, seed=1),
        Dates(300, split="held-out"),
        Dates(300, locales=("ko",)),
    ]
    assert len({one.fingerprint() for one in [dates, *others]}) == 5


def test_one_language_alone_and_a_single_pair_are_enough():
    written, iso = Dates(1, locales=("ko",)).pair(0)
    assert iso[:4] in written


def test_what_cannot_be_generated_is_refused(no_shape_checks):
    with pytest.raises(UnknownNameError, match="There is no locale 'xx_YY'; the nearest"):
        Dates(1, locales=("xx_YY",))
    with pytest.raises(UnknownNameError, match="no split 'test', only train and held-out"):
        Dates(1, split="test")
    with pytest.raises(InputError, match="a count of 1 or more and at least one locale"):
        Dates(0)
    with pytest.raises(InputError, match="a count of 1 or more and at least one locale"):
        Dates(1, locales=())
