"""Small functions of the room on known answers."""

from innerloop.core.statistics import Interval
from innerloop.report.advice_page import hardness_words, landscape_words, note_words, rate_words
from innerloop.report.analysis_page import parts_of
from innerloop.report.comparison_page import verdict
from innerloop.report.figures import Picture
from innerloop.report.plots.choices import standing_data
from innerloop.report.plots.curves import running_median
from innerloop.report.plots.panels import line
from innerloop.report.plots.style import prefixed, wants_log
from innerloop.report.prediction_page import least_sure_first
from innerloop.report.render import coded, content_policy
from innerloop.report.reproduction_page import cell, verdict_words
from innerloop.report.run_page import rate_view
from innerloop.report.text import interval, median_text, number, percent, protocol_words, when


def test_note_words():
    assert (
        note_words([{"method": "anil", "note": "see"}, {"method": "r2d2"}, {"method": "maml", "note": "see"}])
    ) == ["anil, maml: see"]


def test_hardness_words():
    assert (hardness_words({"groups": [], "reason": "there are no groups."})) == "there are no groups."
    groups = [{"name": "Tifinagh", "value": 0.5}, {"name": "Braille", "value": 0.25}]
    assert (
        hardness_words({"groups": groups, "by": "error of pixels", "evidence": "it agreed with 0.7"})
    ) == "Hardest first: Tifinagh (50 %), Braille (25 %): error of pixels; it agreed with 0.7."


def test_landscape_words():
    assert (
        landscape_words({"applies": False, "reason": "nothing is linear"})
    ) == "What adapting brings cannot be told before training: nothing is linear."
    words = landscape_words({"applies": True, "gain": 1.5, "interval": [1.2, 1.9], "reason": "one step"})
    assert words.endswith("all tasks is 1.5 times that of MAML (95 %: 1.2 to 1.9); one step.")


def test_rate_words():
    assert (
        rate_words({"applies": False, "reason": "nothing adapts."})
    ) == "None estimated, because nothing adapts."
    rate = {"applies": True, "alpha": 0.3, "low": 0.1, "high": 0.9, "sweep": [0.1, 0.9], "factor": 5.0}
    words = rate_words({**rate, "method": "anil", "convention": "mse", "reason": "for one step"})
    assert (words.partition(" (")[0], words.rpartition("); ")[2]) == (
        "0.3 for anil, between 0.1 and 0.9",
        "worth trying: 0.1, 0.9; for one step.",
    )


def test_parts_of():
    assert (
        [part["kind"] for part in parts_of(["      risk  on hard", "NAL    1.0      2.0", "between: 1 to 2"])]
    ) == ["table", "lines"]
    assert parts_of(["between: 1 to 2", "gain 3 (95 %: 2 to 4)"])[0]["rows"] == [
        ("between", "1 to 2"),
        ("", "gain 3 (95 %: 2 to 4)"),
    ]


def test_verdict():
    assert (verdict(Interval(-0.5, 0.1, 600), "mse"), verdict(Interval(0.01, 0.02, 600), "accuracy")) == (
        "better",
        "no clear difference",
    )


def test_running_median():
    assert (running_median([1.0, 9.0, 2.0])) == [1.0, 9.0, 2.0]


def test_line():
    assert line("a", [1, 2], [3.0, 4.0], half=[0.5, 0.5]).low == [2.5, 3.5]


def test_prefixed():
    assert (
        prefixed('<path id="a"/><use href="#a" fill="url(#a)"/>', "r1")
    ) == '<path id="r1-a"/><use href="#r1-a" fill="url(#r1-a)"/>'


def test_wants_log():
    assert (wants_log([0.01, 1.0]), wants_log([0.5, 1.0]), wants_log([0.0, 100.0])) == (True, False, False)


def test_least_sure_first():
    sure, unsure = ({"unsure": u, "probability": p} for u, p in ((False, 0.6), (True, 0.9)))
    assert [row["unsure"] for row in least_sure_first([sure, unsure])] == [True, False]


def test_content_policy():
    assert content_policy("a", "b").split("; ")[:2] == ["default-src 'none'", "img-src data:"]


def test_cell():
    assert (cell(0.123456), cell([1.0, 2.5]), cell(None), cell(True), cell({"a": 1})) == (
        "0.1235",
        "1, 2.5",
        "–",
        "yes",
        "a 1",
    )


def test_verdict_words():
    assert verdict_words(3, 2, 3)["text"] == "2 of 3 statements hold here; all 3 findings are as recorded."
    assert verdict_words(1, 1, 0)["text"] == "The statement holds here; the finding is not as recorded."


def test_rate_view():
    assert (
        (rate_view({"setting": 0.5, "low": 0.1, "high": 0.2, "warning": None})["sentences"][0])
        == "inner.lr=0.5 was set by hand; the estimated bracket is 0.1 to 0.2."
    )


def test_protocol_words():
    assert (
        protocol_words({"episodes": 600, "protocol": {"shots": 10, "norm": "none"}}, seed=3)
    ) == "95 % CI over 600 episodes · shots 10 · norm none · training seed 3"


def test_when():
    assert (when("2026-03-01T12:30:05+01:00"), when(None)) == (
        "1 March 2026, 12:30:05 (UTC+01:00)",
        "not recorded",
    )


def test_median_text():
    assert (
        median_text({"scores": [0.1, 0.2, 1e9]}, "mse"),
        median_text({"scores": [0.5, 0.7]}, "accuracy"),
    ) == ("0.2", "60 %")


def test_percent():
    assert (percent(0.5), percent(0.9996), percent(1.0)) == ("50 %", "99.9 %", "100 %")


def test_interval():
    assert (
        interval(0.31234, 0.0213),
        interval(0.4681, 0.0092, "accuracy"),
        interval(-0.5, 0.1, signed=True),
    ) == ("0.312 ± 0.021", "46.81 ± 0.92 %", "−0.50 ± 0.10")
    assert (interval(-0.0528, 0.0071, "accuracy", signed=True)) == "−5.28 ± 0.71 points"
    assert (interval(0.5, None), interval(None, None)) == ("0.5 (no interval)", "not finite")


def test_number():
    assert (number(0.123456), number(12345), number(True), number(None), number([40, 40]), number(1e-9)) == (
        "0.1235",
        "12 345",
        "true",
        "none",
        "[40, 40]",
        "1e-09",
    )


def test_coded():
    assert str(coded("type `innerloop ls` < now")) == "type <code>innerloop ls</code> &lt; now"
    assert str(coded("one ` alone")) == "one ` alone"


def test_wide():
    made = [Picture("", [], f'<svg viewBox="0 0 {width} 200">').wide for width in (720, 360)]
    assert made == [True, False]


def test_standing_data():
    rows = [{"method": "maml", "kind": "trained", "accuracy": 0.5, "ci95": 0.1, "fresh": True}]
    assert standing_data(rows, "accuracy")[0]["value"] == 50.0
