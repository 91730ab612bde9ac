"""--peak-from: which runs can stand for a card's peak."""

import msgspec
import pytest

from flagperf.api import Device, Peak, precision
from flagperf.bundle.bundle import create_bundle
from flagperf.bundle.run_record import Ending
from flagperf.errors import BadInput
from flagperf.metrics.entry import Metric
from flagperf.plan.measured_peak import with_measured_peak
from flagperf.spec.manifest import RowFigure
from run_builders import make_run, minimal_job, minimal_manifest

CARD = Device("card-0", "Some CPU", "CPU", 0)
FIGURE = RowFigure("gemm_fp32", {"en": "FP32"}, "gemm", "flops", "TFLOPS", {"precision": "fp32"})


@pytest.fixture
def measured(tmp_path):
    """The bundle of a run of gemm, with the changes that a test is about."""

    def make(value=2.5, marks=(), **changes):
        inputs = {"labels": {"shape": "8x8x8"}}
        metric = Metric("gemm_fp32", "TFLOPS", "figures", "device", value, inputs=inputs, marks=marks)
        run = msgspec.structs.replace(
            make_run("20260101T000000Z-gemm-cpu-1x1-abcdef"),
            **{
                "manifest": minimal_manifest(name="gemm", kind="base", figures=(FIGURE,)),
                "metrics": (metric,),
                "ending": Ending("succeeded"),
                **changes,
            },
        )
        return str(create_bundle(tmp_path, run, ()))

    return make


def peaks_with(bundle, peaks=(), vendor="cpu", card=CARD, word="fp32", simulated=False, cores=2):
    return with_measured_peak(tuple(peaks), bundle, vendor, card, precision(word), simulated, cores)


def test_the_figure_becomes_the_peak_of_its_precision(measured):
    (peak,) = peaks_with(measured())
    assert (peak.model, peak.row, peak.value) == ("Some CPU", "fp32", 2.5e12)
    assert peak.measured_by == "20260101T000000Z-gemm-cpu-1x1-abcdef"
    assert "20260101T000000Z-gemm-cpu-1x1-abcdef (gemm_fp32, 8x8x8, profile tiny)" in peak.source
    assert peak.confidence == "high"


def test_a_doubtful_figure_says_so_and_has_less_confidence(measured):
    """On a busy host a product is slow, and an MFU against it flatters."""
    (peak,) = peaks_with(measured(marks=("busy_host",)))
    assert peak.source.endswith("(gemm_fp32, 8x8x8, profile tiny, busy_host)")
    assert peak.confidence == "medium"


def test_it_takes_the_place_of_a_peak_of_low_confidence_only(measured):
    low = Peak("Some CPU", "fp32", 9e12, "somebody", "low")
    assert [peak.value for peak in peaks_with(measured(), [low])] == [2.5e12]


def test_cards_are_not_asked_for_the_cores_of_their_host(measured):
    job = minimal_job(host_workers=2, memory_scope="device")
    assert [peak.value for peak in peaks_with(measured(job=job), cores=None)] == [2.5e12]


def test_without_the_option_nothing_changes():
    assert peaks_with(None) == ()


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        (
            {},
            {"peaks": [Peak("Some CPU", "fp32", 9e12, "its box", "high")]},
            "is known .*its box.*leave out --peak-from",
        ),
        ({}, {"vendor": "acme"}, "it ran on cpu Some CPU, this one is on acme Some CPU"),
        ({}, {"card": Device("c", "Other", "O", 0)}, "this one is on cpu Other; measure this card"),
        ({}, {"card": Device("c", "Some CPU", "O", 0, slice="1/2")}, "measure this card"),
        ({}, {"cores": 1}, "a device was 2 of the host's cores there and is 1 here; measure .* on as many devices"),
        ({"job": minimal_job(host_workers=2)}, {}, "a device was 1 of the host's cores there and is 2 here"),
        ({}, {"word": "bf16"}, "no measured products of matrices in bf16"),
        ({}, {"word": "per-row"}, "this one measures rows"),
        ({"value": None}, {}, "no measured products of matrices in fp32"),
        ({"ending": Ending("failed")}, {}, "did not succeed"),
        ({"ending": None}, {}, "did not succeed"),
    ],
)
def test_a_run_that_cannot_stand_for_the_peak_is_refused(measured, changes, given, message):
    with pytest.raises(BadInput, match=message):
        peaks_with(measured(**changes), **given)
