"""Use the measured product of matrices as the peak of a card, where the vendor's is unknown: `--peak-from RUN`."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import Device, Peak, Precision
from flagperf.bundle.run_record import Run
from flagperf.errors import BadInput
from flagperf.plan.placement import cores_of_device
from flagperf.plausibility.doubts import read_marked
from flagperf.units import SCALES


def with_measured_peak(
    peaks: tuple[Peak, ...],
    bundle: str,
    vendor: str,
    device: Device,
    precision: Precision,
    simulated: bool,
    cores: int | None = None,
) -> tuple[Peak, ...]:
    """Return the peaks, with the one for this precision from the run. Raise BadInput if that run cannot stand for it.

    `cores` are those of each device, where the devices are cores of the host.
    """
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
    _check_run(run, vendor, device, simulated, cores)
    return (*(peak for peak in peaks if peak.row != row), _measured(run, row, device))


def _check_run(run: Run, vendor: str, device: Device, simulated: bool, cores: int | None) -> None:
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
    if cores is not None and run.job.memory_scope == "host":  # such a device is as fast as its cores are many
        measured_cores = cores_of_device(run.job.nodes, run.job.host_workers)
        if measured_cores != cores:
            raise BadInput(
                f"{where}: a device was {measured_cores} of the host's cores there and is {cores} here; "
                "measure with `flagperf run gemm` on as many devices of this host as this run uses"
            )


def _measured(run: Run, row: str, device: Device) -> Peak:
    """Return the first rate of products in this precision. A doubtful one has medium confidence, and says why."""
    for figure in run.manifest.figures:
        metric = run.metric(figure.name)
        is_product = figure.amount == "flops" and figure.row == "gemm" and figure.where.get("precision") == row
        if is_product and metric is not None and metric.value:
            shape = metric.inputs["labels"].get("shape", "")
            what = ", ".join((figure.name, shape, f"profile {run.job.profile}", *metric.marks))
            source, value = f"measured by run {run.id} ({what})", metric.value * SCALES[figure.unit]
            return Peak(device.model, row, value, source, "medium" if metric.marks else "high", run.id)
    raise BadInput(
        f"--peak-from {run.id}: it has no measured products of matrices in {row}; "
        f"make one with `flagperf run gemm --set gemm.precisions='[\"{row}\"]'`"
    )
