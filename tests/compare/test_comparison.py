"""Comparisons of invented runs: what is said, and what is not."""

from __future__ import annotations

import pytest
from report_builders import MANIFEST, changed, metric, metrics, node
from side_builders import runs, side, with_rows, with_run

from flagperf.api import DataFile
from flagperf.compare.comparison import Comparison, compare, parse_limit
from flagperf.compare.conditions import differences
from flagperf.compare.contrasts import ComparedFigure
from flagperf.compare.ratio import Contrast
from flagperf.compare.sides import Side
from flagperf.errors import BadInput
from flagperf.report.sections import comparison_blocks
from flagperf.spec.node_facts import Environment, Fact

SLOW, FAST = [100.0, 101.0, 99.0], [120.0, 121.0, 119.5]


def figure(found: Comparison, name: str) -> ComparedFigure:
    return next(each for each in found.figures if each.entry.name == name)


def p_core(found: Comparison) -> Contrast:
    return figure(found, "p_core").against[0]


def texts(found: Comparison) -> list[str]:
    return [str(each) for reasons in found.obstacles.values() for each in reasons]


# --- verdicts -------------------------------------------------------------------------------------------------------


def test_a_faster_group_is_called_faster_and_a_slower_one_slower() -> None:
    one, other = runs("one", SLOW), runs("two", FAST)
    assert p_core(compare([side("A", one), side("B", other)])).word == "faster"
    assert p_core(compare([side("A", other), side("B", one)])).word == "slower"


def test_one_run_against_one_never_gets_a_verdict() -> None:
    found = compare([side("A", runs("one", [100.0])), side("B", runs("two", [200.0]))])
    assert {contrast.word for each in found.figures for contrast in each.against} == {None}
    assert p_core(found).ratio is not None and p_core(found).ratio.value == 2.0
    assert p_core(found).why is not None and p_core(found).why.code == "compare.single"
    assert p_core(compare([side("A", runs("one", SLOW)), side("B", runs("two", [200.0]))])).word is None


def test_less_memory_is_better_and_quality_is_not_judged() -> None:
    one, other = runs("one", SLOW), runs("two", SLOW)
    other = [with_run(each, metrics=tuple(metrics(mem_used=30.0 * (1 << 30)).values())) for each in other]
    found = compare([side("A", one), side("B", other)])
    assert figure(found, "mem_used").against[0].word == "better"
    assert figure(found, "acc").against[0].word is None


def test_the_margin_is_what_a_against_a_shows() -> None:
    """The second half of B is 5 % faster than its first: 3 % more than A are no difference."""
    drifting = [100.5, 100.6, 105.5, 105.6]
    found = compare([side("A", runs("one", [100.0, 100.1, 100.0, 100.1])), side("B", runs("two", drifting))])
    assert p_core(found).verdict is not None
    assert p_core(found).verdict.margin == pytest.approx(0.05, abs=0.002)


def test_a_side_that_is_the_baseline_again_widens_the_margin_of_the_others() -> None:
    base, again, new = runs("one", SLOW), runs("two", [104.0, 105.0, 103.0]), runs("three", FAST)
    new = [changed(each, nodes=(node(os=Fact("other")),)) for each in new]
    found = figure(compare([side("A", base), side("B", again), side("C", new)]), "p_core")
    margins = [each.verdict.margin for each in found.against if each.verdict]
    assert margins == pytest.approx([0.01, 0.04], abs=0.001)


def test_runs_that_took_turns_are_compared_pair_by_pair() -> None:
    one, other = runs("one", [100.0, 150.0, 200.0], arm="A"), runs("two", [103.0, 154.4, 206.1], arm="B")
    found = compare([side("A", one), side("B", other)])
    ratio = p_core(found).ratio
    assert ratio is not None and ratio.method == "paired" and found.paired == ("B",)
    assert p_core(found).word == "faster"


def test_a_pair_whose_other_run_failed_is_left_out() -> None:
    one, other = runs("one", [100.0, 150.0, 200.0], arm="A"), runs("two", [103.0, 154.4, 206.1], arm="B")
    found = compare([side("A", one), side("B", other[1:])])
    ratio = p_core(found).ratio
    assert ratio is not None and (ratio.method, ratio.num_runs) == ("paired", 2)
    values = figure(found, "p_core").sides
    assert ratio.value == pytest.approx(values[1].value / values[0].value)  # of the same runs
    assert [run.id for run in found.sides[0].left_out] == [one[0].run.id]
    assert "the other run of its pair has no results" in comparison_blocks.sides(found, "en").facts[0].note


def test_a_metric_that_some_runs_lack_counts_those_that_have_it() -> None:
    one, other = runs("one", SLOW), runs("two", FAST)
    lacking = with_run(other[0], metrics=tuple(each for each in other[0].run.metrics if each.name != "p_core"))
    found = compare([side("A", one), side("B", [lacking, *other[1:]])])
    value = figure(found, "p_core").sides[1]
    assert (len(value.values), value.num_runs) == (2, 3)


def test_marks_stay_with_the_number() -> None:
    one = runs("one", SLOW)
    marked = tuple(
        changed(each, marks=("busy_host",)) if each.name == "p_core" else each for each in one[1].run.metrics
    )
    found = compare([side("A", [one[0], with_run(one[1], metrics=marked)]), side("B", runs("two", FAST))])
    assert figure(found, "p_core").sides[0].marks == ("busy_host",)


def test_values_of_different_units_or_formulas_are_not_compared() -> None:
    one, other = runs("one", SLOW), runs("two", FAST)

    def changing(name: str, **fields: object) -> list:  # type: ignore[type-arg]
        return [
            with_run(each, metrics=tuple(changed(m, **fields) if m.name == name else m for m in each.run.metrics))
            for each in other
        ]

    mixed = p_core(compare([side("A", one), side("B", changing("p_core", unit="tokens/s"))]))
    assert mixed.ratio is None and mixed.why is not None and mixed.why.code == "compare.units"
    newer = p_core(compare([side("A", one), side("B", changing("p_core", version=2))]))
    assert newer.ratio is not None and newer.word is None and "versions 1 and 2" in str(newer.why)


def test_zero_has_no_ratio() -> None:
    zeros = [with_run(each, metrics=(metric("p_core", 0.0),)) for each in runs("two", FAST)]
    found = p_core(compare([side("A", runs("one", SLOW)), side("B", zeros)]))
    assert found.ratio is None and "not above 0" in str(found.why)


# --- what makes sides incomparable, and what differs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"profile": "tiny"}, ["profile is standard in A, tiny in B", "model.sequence is 512 in A, 32 in B"]),
        ({"set_values": {"model.sequence": 256}}, ["model.sequence is 512 in A, 256 in B"]),
        ({"manifest": changed(MANIFEST, version=2)}, ["the version of the case is 1 in A, 2 in B"]),
        ({"manifest": changed(MANIFEST, model="other")}, ["model is distilbert-base-uncased in A, other in B"]),
        (
            {"data_files": (DataFile("dataset/train_dataset.npz", 1000, "cd" * 32),)},
            ["the data files of A and B differ: dataset/train_dataset.npz"],
        ),
        ({"simulated": True}, ["B is simulated"]),
    ],
)
def test_other_work_is_said_and_gets_no_verdict(fields: dict[str, object], words: list[str]) -> None:
    found = compare([side("A", runs("one", SLOW)), side("B", runs("two", FAST, **fields))])
    for each in words:
        assert any(each in text for text in texts(found)), texts(found)
    assert {contrast.word for each in found.figures for contrast in each.against} == {None}
    assert p_core(found).ratio is not None


def test_precision_shape_and_batch_size_may_differ_and_are_named() -> None:
    other = runs("two", FAST, devices=4, set_values={"training.batch_size": 64})
    found = compare([side("A", runs("one", SLOW)), side("B", other)])
    assert not found.obstacles and p_core(found).word == "faster"
    assert {(each.subject, each.name, each.values) for each in found.differences} == {
        ("hardware", "shape", ("1x8", "1x4")),
        ("configuration", "training.batch_size", ("32", "64")),
    }


def test_environment_and_software_are_named() -> None:
    other = [changed(each, nodes=(node(os=Fact("Debian 12"), python=Fact("3.12.1")),)) for each in runs("two", FAST)]
    found = compare([side("A", runs("one", SLOW)), side("B", other)])
    assert [(each.subject, each.name, each.values) for each in found.differences] == [
        ("environment", "os", ("Ubuntu 22.04.4 LTS", "Debian 12")),
        ("software", "python", ("3.10.14", "3.12.1")),
    ]


def test_a_variable_or_package_that_one_side_has_is_a_difference() -> None:
    plain = Environment({}, packages={"torch": "2.13.0"}, variables={})
    other = Environment({}, packages={"torch": "2.13.0", "flash-attn": "2.9"}, variables={"OMP_NUM_THREADS": "1"})
    sides = [
        side(letter, [changed(each, nodes=(changed(node(), environment=environment),)) for each in runs(name, speeds)])
        for letter, name, speeds, environment in (("A", "one", SLOW, plain), ("B", "two", FAST, other))
    ]
    assert [(each.name, each.values) for each in differences(sides)] == [
        ("OMP_NUM_THREADS", ("", "1")),
        ("flash-attn", ("", "2.9")),
    ]


def test_what_another_version_did_not_look_for_is_not_known() -> None:
    plain = Environment({}, packages={}, variables={})
    other = Environment({}, packages={"flash-attn": "2.9"}, variables={})
    one = [changed(each, nodes=(changed(node(), environment=plain),)) for each in runs("one", SLOW)]
    two = [changed(each, nodes=(changed(node(), environment=other),)) for each in runs("two", FAST)]
    two = [with_run(each, flagperf_version="0.0.9") for each in two]
    assert [each.name for each in differences([side("A", one), side("B", two)])] == ["flagperf"]


def test_what_two_published_results_changed_is_a_difference() -> None:
    one = MANIFEST.references[0]
    other = changed(one, overrides="bs=96")
    sides = [Side(letter, letter, reference=each, manifest=MANIFEST) for letter, each in (("A", one), ("B", other))]
    assert [(each.name, each.values) for each in differences(sides)] == [("fix_hp", ("", "bs=96"))]


def test_how_data_is_loaded_is_no_other_data() -> None:
    values = {**MANIFEST.values, "data": {"num_workers": 8}}
    manifest = changed(MANIFEST, values=values)
    one = runs("one", SLOW, manifest=manifest)
    other = runs("two", FAST, manifest=manifest, set_values={"data.num_workers": 2})
    found = compare([side("A", one), side("B", other)])
    assert not found.obstacles
    assert [each.name for each in found.differences] == ["data.num_workers"]


def test_another_case_is_refused() -> None:
    other = runs("two", FAST, manifest=changed(MANIFEST, name="glm"))
    with pytest.raises(BadInput, match=r"different cases: distilbert \(side-A\), glm \(side-B\)"):
        compare([side("A", runs("one", SLOW)), side("B", other)])


def test_a_run_counts_once() -> None:
    one = runs("one", SLOW)
    with pytest.raises(BadInput, match="is on two sides, side-A and side-B"):
        compare([side("A", one), side("B", one[:1])])


def test_runs_of_a_side_are_repeats_of_one_another() -> None:
    mixed = [*runs("one", SLOW), *runs("two", FAST, set_values={"training.batch_size": 64})]
    with pytest.raises(
        BadInput, match=r"side-A are not repeats of one another: training.batch_size is 32 in .*, 64 in"
    ):
        compare([side("A", mixed), side("B", runs("three", FAST))])


def test_repeats_may_have_seeds_of_their_own() -> None:
    manifest = changed(MANIFEST, values={**MANIFEST.values, "training": {**MANIFEST.values["training"], "seed": 0}})
    one = [*runs("a", SLOW, manifest=manifest), *runs("b", SLOW, manifest=manifest, set_values={"training.seed": 7})]
    compare([side("A", one), side("B", runs("c", FAST, manifest=manifest))])


def test_both_arms_as_one_side_are_told_apart() -> None:
    both = [*runs("one", SLOW, arm="A"), *runs("two", FAST, arm="B", set_values={"training.batch_size": 64})]
    with pytest.raises(BadInput, match="name one arm: group-00c0ffee/A or /B"):
        compare([side("A", both), side("B", runs("three", FAST))])


# --- published results ----------------------------------------------------------------------------------------------


def published(letter: str) -> Side:
    return Side(letter, "published:x", reference=MANIFEST.references[0], manifest=MANIFEST)


def test_a_published_number_gives_a_difference_and_no_verdict() -> None:
    found = compare([published("A"), side("B", runs("one", SLOW))])
    assert p_core(found).word is None and p_core(found).ratio is not None
    assert p_core(found).ratio.value == pytest.approx(100.0 / 1942.6, rel=0.01)
    assert {(each.name, each.values) for each in found.differences} == {
        ("vendor", ("nvidia", "metax")),
        ("device", ("A100-SXM4-40GB", "MetaX C500")),
    }


def test_another_profile_than_the_published_one_is_said() -> None:
    found = compare([side("A", runs("one", SLOW, profile="tiny")), published("B")])
    assert texts(found) == ["A has profile tiny, which is not the published configuration"]


# --- rows -----------------------------------------------------------------------------------------------------------


def row_side(letter: str, *groups: dict[str, float]) -> Side:
    return side(letter, [with_rows(one, each) for one, each in zip(runs(letter, SLOW), groups, strict=False)])


def test_rows_are_joined_by_their_labels_and_those_that_differ_most_come_first() -> None:
    one = row_side("A", {"mm": 1.0, "add": 2.0, "sin": 1.0})
    found = compare([one, row_side("B", {"mm": 1.1, "add": 1.0, "cos": 1.0})]).rows
    assert [row.labels["operator"] for row in found.rows] == ["add", "mm"]
    assert found.missing == (1, 1)
    assert {contrast.word for row in found.rows for contrast in row.against} == {None}


def test_rows_of_runs_that_took_turns_are_compared_pair_by_pair() -> None:
    """The machine slows down by half, and B takes 1.1 times A in every pair. One run of B lacks a row: two are left."""
    ours = [{"mm": seconds, "add": seconds} for seconds in (1.0, 1.5, 2.0)]
    others = [{"mm": 1.1, "add": 1.1}, {"mm": 1.66}, {"mm": 2.2, "add": 2.21}]
    one, other = (
        side(arm, [with_rows(run, each) for run, each in zip(runs(arm, SLOW, arm=arm), rows, strict=True)])
        for arm, rows in (("A", ours), ("B", others))
    )
    found = {row.labels["operator"]: row.against[0] for row in compare([one, other]).rows.rows}
    assert {name: each.ratio and (each.ratio.method, each.ratio.num_runs) for name, each in found.items()} == {
        "mm": ("paired", 3),
        "add": ("paired", 2),
    }
    assert found["mm"].word == "slower"


def test_verdicts_of_rows_are_corrected_for_their_number() -> None:
    one = row_side("A", *({"mm": 1.0 + index / 1000, "add": 2.0 + index / 1000} for index in range(3)))
    other = row_side("B", *({"mm": 0.5 + index / 1000, "add": 2.0 + index / 1000} for index in range(3)))
    found = {row.labels["operator"]: row.against[0] for row in compare([one, other]).rows.rows}
    assert (found["mm"].word, found["add"].word) == ("faster", "same")
    assert found["mm"].verdict is not None and found["mm"].verdict.corrected_p >= found["mm"].verdict.p


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "speeds", "state"),
    [
        ("p_core < -5%", [80.0, 81.0, 79.0], "broken"),
        ("p_core < -5%", [99.0, 100.0, 101.0], "kept"),
        ("p_core < -5 %", [90.0, 95.0, 100.0], "undecided"),
        ("p_core > +5%", FAST, "broken"),
        ("p_core>30%", FAST, "kept"),
        ("p_core < -5%", [80.0], "broken"),
        ("p_core < -5%", [99.0], "kept"),
    ],
)
def test_limits(text: str, speeds: list[float], state: str) -> None:
    found = compare([side("A", runs("one", SLOW)), side("B", runs("two", speeds))], limits=[parse_limit(text)])
    assert [each.state for each in found.limits] == [state]
    assert found.limits[0].by_interval == (len(speeds) > 1)


def test_a_limit_that_cannot_be_judged_is_not_kept() -> None:
    other = runs("two", FAST, profile="tiny")
    found = compare([side("A", runs("one", SLOW)), side("B", other)], limits=[parse_limit("p_core < -5%")])
    assert found.limits[0].state == "unknown"


@pytest.mark.parametrize(
    "text", ["", "p_core", "p_core < 5", "p_core = 5%", "p_core < five%", "< -5%", "p_core <= -5%"]
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(BadInput, match=r"--fail-if takes a metric, < or >, .*'p_core < -5%'"):
        parse_limit(text)


def test_a_limit_of_an_unknown_metric_has_near_matches() -> None:
    with pytest.raises(BadInput, match="did you mean p_core"):
        compare([side("A", runs("one", SLOW)), side("B", runs("two", FAST))], limits=[parse_limit("p_cor < -5%")])
