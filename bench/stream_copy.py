"""The copy of STREAM, compiled here: what a plain loop in C with OpenMP reaches in the memory."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.measure import NotMeasured

SOURCE = """
#include <omp.h>
#include <stdlib.h>

static double *a, *c;

/* Pages are first written by the thread that will use them. */
int make(long n, int threads) {
    omp_set_num_threads(threads);
    a = aligned_alloc(4096, n * sizeof(double));
    c = aligned_alloc(4096, n * sizeof(double));
    if (!a || !c) return 1;
    #pragma omp parallel for
    for (long i = 0; i < n; i++) { a[i] = i; c[i] = 0; }
    return 0;
}

void copy(long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) c[i] = a[i];
}

double last(long n) { return c[n - 1]; }
"""


def stream_copy(folder: Path, num_bytes: int, threads: int) -> Callable[[], None]:
    """Copies `num_bytes` from one array to another, which stay until the process ends."""
    library, n = ctypes.CDLL(str(_compiled(folder))), num_bytes // 8
    library.make.argtypes, library.copy.argtypes = (ctypes.c_long, ctypes.c_int), (ctypes.c_long,)
    library.last.argtypes, library.last.restype = (ctypes.c_long,), ctypes.c_double
    if library.make(n, threads):
        raise NotMeasured(f"no memory for two arrays of {num_bytes} bytes")
    library.copy(n)
    if library.last(n) != n - 1:
        raise NotMeasured("STREAM's copy copied nothing")
    return lambda: library.copy(n)


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotMeasured("no C compiler (cc) to build STREAM's copy with")
    source, library = folder / "stream.c", folder / "stream.so"
    source.write_text(SOURCE)
    command = [compiler, "-O3", "-fopenmp", "-shared", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotMeasured(f"STREAM's copy does not compile: {done.stderr.strip().splitlines()[-1]}")
    return library
