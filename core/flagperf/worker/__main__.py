"""One rank: activate the device, run the case, record how it ended. Started by a Launcher, never by hand."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from flagperf.api import DeviceBackend, Precision
from flagperf.bundle.paths import rank_events, rank_log, rank_operators
from flagperf.errors import Unsupported
from flagperf.event_files import EventWriter, this_clock
from flagperf.events import EVENT_SCHEMA, WorkerEnded, WorkerStarted
from flagperf.kinds import KINDS
from flagperf.kit import read_cpu_list, write_cpu_list
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.processes import die_with_parent
from flagperf.spec.job import fingerprint
from flagperf.spec.protocol import WorkOrder
from flagperf.worker.context import Context
from flagperf.worker.row_timing import forget_memory
from flagperf.worker.step_timing import RecordedSteps

# CPU affinity: binds a rank to the CPUs close to its card (Device.near_cpus).


def bind_to_cpus(cpus: str) -> None:
    """Call before torch is imported, so that its threads inherit the affinity. An empty string changes nothing."""
    if cpus:
        os.sched_setaffinity(0, read_cpu_list(cpus))


def bound_cpus() -> str:
    """Return the list of CPUs that this rank may use, for the record."""
    return write_cpu_list(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""


# Simulated cards in the worker.


def worker_backend(backend: DeviceBackend, simulated: bool) -> DeviceBackend:
    if not simulated:
        return backend
    from flagperf.testing.simulated_cards import simulated_backend  # only here: a device that tests use

    return simulated_backend(backend)


# Prove on the card that fp32 and tf32 are what they are called, before anything is measured.
#
# A build may ignore the switches, or round in fp32 by default where nobody looks for one. Only products of matrices
# are tried: a convolution would load another library of the vendor, whose memory would be counted as the case's.


ROUNDS = 2.0**-16
"""A relative error above this is that of a format with fewer bits, and not fp32 that is put together from such."""


def prove_precision(precision: Precision, torch_device: str, vendor: str) -> None:
    """Raise Unsupported if products of matrices on this device are not what fp32 and tf32 mean."""
    if precision.compute not in ("tf32", "float32"):
        return
    import torch

    # A product with the identity: its relative error is 0 in fp32, up to 2**-11 in TF32, 2**-12 in HF32. The matrices
    # are large enough for the kernels that real work uses.
    size = 1024
    values = torch.linspace(1, 2, size * size).reshape(size, size)
    product = torch.matmul(values.to(torch_device), torch.eye(size).to(torch_device)).cpu()
    forget_memory(torch_device)
    error = float(((product - values) / values).abs().max())
    this_torch = f"this torch ({torch.__version__})"
    if precision.compute == "tf32" and error < ROUNDS:
        raise Unsupported(
            f"tf32 is switched on, but {this_torch} multiplies in fp32 on {vendor} cards: "
            "the result would be mislabelled; choose fp32"
        )
    if precision.compute == "float32" and not error < ROUNDS:
        raise Unsupported(
            f"fp32 was asked for, but {this_torch} multiplies with a relative error of {error:.1g} on "
            f"{vendor} cards, as TF32 does: the result would be mislabelled. Name the switch in the adapter's "
            "tf32_switches, or choose another precision"
        )


SAVE_SECONDS = 10.0
"""A device has so long to answer after a failure."""


def main() -> int:
    given = msgspec.json.decode(Path(os.environ["FLAGPERF_ORDER"]).read_bytes())
    order = msgspec.convert(given, WorkOrder)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torch.distributed.run is killed with the agent, and then stops nobody. It starts its workers in its main
        # thread; another launcher may do so in a thread that ends early, which would count as its death.
        die_with_parent(signal.SIGKILL)
    rank, directory = int(os.environ["RANK"]), Path(order.directory)
    _redirect_output(directory / rank_log(rank))
    faulthandler.enable()
    # Whoever stops this rank (a time limit, another rank's failure) finds in its log where it was.
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
    plugins = load_plugins(order.job.plugins)
    backend = worker_backend(plugins.device_backend(order.job.vendor), order.job.simulated)
    with EventWriter(directory / rank_events(rank)) as writer:
        ended = _outcome(
            backend,
            writer,
            lambda: _prepare(order, plugins, backend, writer, rank, fingerprint(given["job"])),
            lambda context: _run_case(order, context, directory),
        )
        writer.end(ended)
    return 0 if ended.status == "succeeded" else 1


def _prepare(
    order: WorkOrder, plugins: Plugins, backend: DeviceBackend, writer: EventWriter, rank: int, given_job: str
) -> Context:
    job, local_rank = order.job, int(os.environ["LOCAL_RANK"])
    node = order.node
    bind_to_cpus(node.devices[local_rank].near_cpus)
    activation = backend.activate(local_rank, order.share().num_threads, node.devices)
    backend.set_precision(job.precision)
    if activation.torch_device != "cpu":  # where fp32 is exact, and simulated cards have no tf32
        prove_precision(job.precision, activation.torch_device, backend.vendor)
    writer.write(
        WorkerStarted(
            t_ns=time.monotonic_ns(),
            schema=EVENT_SCHEMA,
            clock=this_clock(),
            rank=rank,
            local_rank=local_rank,
            node_index=order.node_index,
            world_size=order.world_size,
            device_id=activation.device_id,
            mapping=activation.mapping,
            timing="device_events" if backend.has_timing_events else "synchronize",
            framework={
                **{name: str(value) for name, value in backend.framework_state().items()},
                "cpus": bound_cpus(),
            },
            precision=job.precision.name,
            batch_size=job.batch_size,
            job=given_job,
        )
    )
    _join_group(backend, order.world_size)
    return Context(
        backend=backend,
        activation=activation,
        precision=job.precision,
        kind=KINDS[job.kind],
        config=job.config.values,
        sink=writer,
        rank=rank,
        world_size=order.world_size,
        local_rank=local_rank,
        memory_bytes=node.devices[local_rank].memory_bytes,
        node_index=order.node_index,
        libraries=lambda name: plugins.operator_libraries()[name].value,
        data_dir=Path(job.data_dir) if job.data_dir else None,
        recorded=RecordedSteps(job.record_steps),
        recording=job.recording,
    )


def _run_case(order: WorkOrder, context: Context, directory: Path) -> None:
    module, _, name = order.job.case_target.partition(":")
    getattr(importlib.import_module(module), name)(context)
    if order.job.recording is not None and not context._has_read_recording:
        raise RuntimeError(
            f"case {order.job.case} cannot replay recorded operators: it does not ask for ctx.recording()"
        )
    if order.job.record_steps:
        (directory / rank_operators(context.rank)).write_bytes(context._recorded.operators(context.rank))


def _outcome(
    backend: DeviceBackend,
    writer: EventWriter,
    prepare: Callable[[], Context],
    run_case: Callable[[Context], None],
) -> WorkerEnded:
    """Return the ending of this rank, whatever the case raises; the traceback goes to its log."""
    context = None
    try:
        context = prepare()
        run_case(context)
        if "torch" in sys.modules:
            import torch

            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        return _with_peak(WorkerEnded(time.monotonic_ns(), "succeeded"), backend)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        return _failed(backend, writer, context, error)


def _failed(backend: DeviceBackend, writer: EventWriter, context: Context | None, error: BaseException) -> WorkerEnded:
    """Ask the device about the failure and write the steps that were finished before it. If the device does not answer
    any more, this rank ends with what is known by then."""
    ended = WorkerEnded(time.monotonic_ns(), "failed", f"{type(error).__name__}: {error}")

    def leave() -> None:
        writer.end(ended)
        _leave(1)

    limit = threading.Timer(SAVE_SECONDS, leave)
    limit.daemon = True
    limit.start()
    with _printing_what_fails():
        if isinstance(error, Unsupported):
            ended = msgspec.structs.replace(ended, status="unsupported")
        elif backend.is_out_of_memory(error):
            ended = msgspec.structs.replace(ended, status="out_of_memory")
    with _printing_what_fails():  # it may have failed before it had an allocator
        ended = _with_peak(ended, backend)
    with _printing_what_fails():
        if context is not None:
            context._write_finished_steps()
    limit.cancel()
    return ended


@contextlib.contextmanager
def _printing_what_fails() -> Iterator[None]:
    """A vendor's code on a device that has failed may raise anything; the failure that ends this rank counts."""
    try:
        yield
    except BaseException:  # noqa: BLE001
        traceback.print_exc()


def _with_peak(ended: WorkerEnded, backend: DeviceBackend) -> WorkerEnded:
    peak = backend.allocator_memory() if backend.has_allocator else None
    if peak is None:
        return ended
    return msgspec.structs.replace(
        ended,
        allocator_peak_allocated_bytes=peak.peak_allocated_bytes,
        allocator_peak_reserved_bytes=peak.peak_reserved_bytes,
    )


def _join_group(backend: DeviceBackend, world_size: int) -> None:
    """Create one process group of all ranks, so that no library creates a separate group per rank."""
    if int(os.environ["WORLD_SIZE"]) != world_size:
        raise RuntimeError(f"the launcher started {os.environ['WORLD_SIZE']} ranks, but the job has {world_size}")
    if world_size > 1:
        import torch

        torch.distributed.init_process_group(backend.collective_backend)


def _redirect_output(path: Path) -> None:
    """Redirect file descriptors, not sys.stdout, so that the log has the output of native libraries too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)


def _leave(code: int) -> NoReturn:
    """Exit without interpreter shutdown; everything is recorded by now. During shutdown, native threads of collective
    libraries sometimes abort the process ("terminate called without an active exception", seen with gloo), which would
    turn a successful run into a failed one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
