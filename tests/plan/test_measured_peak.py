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
KNOWN = Peak("Some CPU", "fp32", 9e12, "its box", "high")


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


@pytest.mark.parametrize(
    ("marks", "confidence", "words"),
    [
        ((), "high", "(gemm_fp32, 8x8x8, profile tiny)"),
        # on a busy host a product is slow, and an MFU against it flatters
        (("busy_host",), "medium", "(gemm_fp32, 8x8x8, profile tiny, busy_host)"),
    ],
)
def test_the_figure_becomes_the_peak_of_its_precision_with_its_doubts(measured, marks, confidence, words):
    low = Peak("Some CPU", "fp32", 9e12, "somebody", "low")
    (peak,) = peaks_with(measured(marks=marks), [low])
    assert (peak.model, peak.row, peak.value, peak.confidence) == ("Some CPU", "fp32", 2.5e12, confidence)
    assert peak.measured_by == "20260101T000000Z-gemm-cpu-1x1-abcdef"
    assert peak.source.endswith(f"{peak.measured_by} {words}")


def test_cards_are_not_asked_for_the_cores_of_their_host(measured):
    job = minimal_job(host_workers=2, memory_scope="device")
    assert [peak.value for peak in peaks_with(measured(job=job), cores=None)] == [2.5e12]


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({}, {"peaks": [KNOWN]}, "is known .*its box.*leave out --peak-from"),
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
