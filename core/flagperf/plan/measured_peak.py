"""The measured product of matrices of a card as its peak, where the vendor's is unknown: `--peak-from RUN`."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import Device, Peak, Precision
from flagperf.bundle.run_record import Run
from flagperf.errors import BadInput
from flagperf.metrics.entry import Metric
from flagperf.plan.placement import cores_of_device
from flagperf.plausibility.doubts import read_marked
from flagperf.spec.manifest import RowFigure
from flagperf.units import SCALES


def with_measured_peak(
    peaks: tuple[Peak, ...],
    bundle: str | None,
    vendor: str,
    device: Device,
    precision: Precision,
    simulated: bool,
    cores: int | None = None,
) -> tuple[Peak, ...]:
    """The peaks, with the one for this precision from the run. Raises BadInput if that run cannot stand for it. `cores`
    are those of each device, where the devices are cores of the host."""
    if bundle is None:
        return peaks
    if precision.is_per_row:
        raise BadInput("--peak-from is for cases that have an MFU; this one measures rows")
    (recorded,) = read_marked([Path(bundle)])
    run = recorded.run
    row = precision.peak_row
    known = next((peak for peak in peaks if peak.row == row and peak.confidence != "low"), None)
    if known is not None:
        raise BadInput(
            f"--peak-from {run.id}: the peak of {device.model} for {row} is known ({known.value:g}, {known.source}); "
            "leave out --peak-from"
        )
    _check_run(run, vendor, device, simulated)
    _check_cores(run, cores)
    return (*(peak for peak in peaks if peak.row != row), _measured(run, row, device))


def _check_run(run: Run, vendor: str, device: Device, simulated: bool) -> None:
    where = f"--peak-from {run.id}"
    if run.ending is None or run.ending.status != "succeeded":
        raise BadInput(f"{where}: that run did not succeed; give one that did")
    measured = run.job.device_model
    if (run.job.vendor, measured.model, measured.slice) != (vendor, device.model, device.slice):
        raise BadInput(
            f"{where}: it ran on {run.job.vendor} {measured.model}, this one is on {vendor} {device.model}; "
            "measure this card with `flagperf run gemm`"
        )
    if run.simulated and not simulated:
        raise BadInput(f"{where}: its cards were simulated; measure a real one with `flagperf run gemm`")


def _check_cores(run: Run, cores: int | None) -> None:
    """A device that is a part of the host is as fast as its cores are many."""
    if cores is None or run.job.memory_scope != "host":
        return
    measured = cores_of_device(run.job.nodes, run.job.host_workers)
    if measured != cores:
        raise BadInput(
            f"--peak-from {run.id}: a device was {measured} of the host's cores there and is {cores} here; "
            "measure with `flagperf run gemm` on as many devices of this host as this run uses"
        )


def _measured(run: Run, row: str, device: Device) -> Peak:
    """A doubtful figure is a peak of medium confidence, and says why."""
    found = [(figure, metric) for figure in run.manifest.figures if (metric := _of_row(run, figure, row))]
    if not found:
        raise BadInput(
            f"--peak-from {run.id}: it has no measured products of matrices in {row}; "
            f"make one with `flagperf run gemm --set gemm.precisions='[\"{row}\"]'`"
        )
    figure, metric = found[0]
    shape = metric.inputs["labels"].get("shape", "")
    what = ", ".join((figure.name, shape, f"profile {run.job.profile}", *metric.marks))
    value = (metric.value or 0) * SCALES[figure.unit]
    return Peak(
        device.model, row, value, f"measured by run {run.id} ({what})", "medium" if metric.marks else "high", run.id
    )


def _of_row(run: Run, figure: RowFigure, row: str) -> Metric | None:
    """The figure's metric, if it is a rate of products in this precision and was measured."""
    metric = run.metric(figure.name)
    is_product = figure.amount == "flops" and figure.row == "gemm" and figure.where.get("precision") == row
    return metric if is_product and metric is not None and metric.value else None
