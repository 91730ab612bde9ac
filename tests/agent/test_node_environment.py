"""Machines laid out in a temporary directory, one fact at a time; git repositories and distributions are real."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.agent import node_environment
from flagperf.agent.node_environment import (
    RESULT_VARIABLES,
    capture_environment,
    is_simulated,
    node_machine,
    source_commit,
)
from flagperf.api import CommandOutput, Machine
from flagperf.errors import BadInput
from flagperf.spec.node_facts import ENVIRONMENT_FACTS, Environment, Fact

Files = dict[str, str]

VENDOR, PRODUCT = "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name"
ARM = {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n"}


class Node:
    """A machine below tmp_path: files by their path, tools by what they print."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self.tools: dict[str, CommandOutput] = {}

    def write(self, files: Files) -> None:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def run_tool(self, argv: list[str], timeout_seconds: float = 10.0) -> CommandOutput:
        missing = CommandOutput(None, "", "", f"{argv[0]} could not be started: {os.strerror(errno.ENOENT)}")
        return self.tools.get(argv[0], missing)

    def machine(self) -> Machine:
        return Machine(root=self.root, environ=self.environ, run_tool=self.run_tool)

    def capture(self, packages: tuple[str, ...] = (), extra_variables: tuple[str, ...] = ()) -> Environment:
        return capture_environment(self.machine(), packages, extra_variables)

    def fact(self, name: str) -> Fact:
        return self.capture().facts[name]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    root = tmp_path / "root"
    root.mkdir()
    return Node(root)


def absent_reason(fact: Fact) -> str:
    assert fact.value is None and fact.how == "absent"
    assert fact.message is not None and str(fact.message) == fact.reason
    return fact.reason


def cpuinfo(name: str, sockets: int, cores: int, threads: int = 1) -> str:
    block = "processor\t: {n}\nmodel name\t: {name}\nphysical id\t: {socket}\ncore id\t: {core}\ncpu cores\t: {cores}\n"
    places = [(s, c) for _ in range(threads) for s in range(sockets) for c in range(cores)]
    return "\n".join(block.format(n=n, name=name, socket=s, core=c, cores=cores) for n, (s, c) in enumerate(places))


def fabric(adapter: str, rate: str, layer: str = "InfiniBand", state: str = "4: ACTIVE") -> Files:
    port = f"sys/class/infiniband/{adapter}/ports/1"
    return {
        f"{port}/rate": rate, f"{port}/link_layer": layer, f"{port}/state": state,
        f"sys/class/infiniband/{adapter}/device/vendor": "0x15b3",
    }  # fmt: skip


def virtual(adapter: str) -> Files:
    return {f"sys/class/infiniband/{adapter}/device/physfn/vendor": ""}


def ethernet(name: str, speed: str | None, state: str = "up", kind: str = "1", physical: bool = True) -> Files:
    interface = f"sys/class/net/{name}"
    return {
        f"{interface}/operstate": state, f"{interface}/type": kind,
        **({f"{interface}/speed": speed} if speed is not None else {}),
        **({f"{interface}/device/vendor": "0x8086"} if physical else {}),
    }  # fmt: skip


HDR, EDR = "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)"
MIXED = {name: text for index in range(1, 9) for name, text in fabric(f"mlx5_{index}", "400 Gb/sec (4X NDR)").items()}
SLOWER = {**ethernet("eno1", "1000"), **ethernet("ens1f0", "25000"), **ethernet("ens1f1", "25000")}
NOT_COUNTED = {
    **ethernet("ens2", "100000", state="down"), **ethernet("lo", "1000000", physical=False),
    **ethernet("docker0", "200000", physical=False), **ethernet("ib0", "200000", kind="32"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "files", "value"),
    [
        ("machine", {VENDOR: "Supermicro\n", PRODUCT: "  SYS-420GP-TNR \n"}, "Supermicro SYS-420GP-TNR"),
        ("machine", {VENDOR: "HPE", PRODUCT: "HPE Cray XD670"}, "HPE Cray XD670"),
        ("machine", {VENDOR: "To be filled by O.E.M.", PRODUCT: "G292-Z20-00"}, "G292-Z20-00"),
        ("machine", {"proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\x00"}, "Raspberry Pi 4 Model B Rev 1.4"),
        ("cpu", {"proc/cpuinfo": cpuinfo("AMD EPYC 7742", 2, 64, threads=2)}, "2 x AMD EPYC 7742 (128 cores)"),
        ("cpu", {"proc/cpuinfo": cpuinfo("Intel(R)     @ 2.20GHz", 1, 1)}, "Intel(R) @ 2.20GHz (1 core)"),
        (
            "cpu",
            {"proc/cpuinfo": cpuinfo("A", 1, 4) + "\nprocessor: 9\nmodel name: B\nphysical id: 1\ncpu cores: 8\n"},
            "A + B (12 cores)",
        ),
        (
            "cpu",
            {"proc/cpuinfo": "processor: 0\nmodel name: S5000C/64\n\nprocessor: 1\nmodel name: S5000C/64\n"},
            "S5000C/64 (2 logical CPUs)",
        ),
        (
            "network",
            {**fabric("mlx5_0", HDR), **fabric("mlx5_1", HDR), **ethernet("eth0", "400000")},
            "InfiniBand, 2 x 200 Gb/s",
        ),
        (
            "network",
            {**fabric("mlx5_0", EDR, "Ethernet"), **fabric("mlx5_1", HDR, "Ethernet", "1: DOWN")},
            "RoCE, 100 Gb/s",
        ),
        (
            "network",
            {**fabric("mlx5_1", HDR, "Ethernet", "1: DOWN"), **ethernet("eth0", "25000")},
            "Ethernet, 25 Gb/s",
        ),
        (
            "network",
            {**fabric("mlx5_0", "25 Gb/sec (1X EDR)", "Ethernet"), **MIXED},
            "InfiniBand, 8 x 400 Gb/s; RoCE, 25 Gb/s",
        ),
        (
            "network",
            {
                **fabric("irdma0", EDR, "Ethernet"),
                "sys/class/infiniband/irdma0/node_type": "4: RNIC",
                **fabric("rdmap0", EDR, "Unspecified"),
            },
            "RDMA, 100 Gb/s; iWARP, 100 Gb/s",
        ),
        (
            "network",
            {**fabric("mlx5_0", HDR), **fabric("mlx5_2", HDR), **virtual("mlx5_2")},
            "InfiniBand, 200 Gb/s",
        ),
        ("network", {**fabric("mlx5_2", HDR), **virtual("mlx5_2")}, "InfiniBand, 200 Gb/s"),
        ("network", {**SLOWER, **NOT_COUNTED}, "Ethernet, 2 x 25 Gb/s"),
        ("network", ethernet("eth0", "2500", state="unknown"), "Ethernet, 2.5 Gb/s"),
        (
            "network",
            {**ethernet("eth0", "1000"), **ethernet("wlan0", None), "sys/class/net/wlan0/phy80211/name": "phy0"},
            "Ethernet, 1 Gb/s",
        ),
        ("os", {"etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.3 LTS"\n'}, "Ubuntu 22.04.3 LTS"),
        ("os", {"usr/lib/os-release": "PRETTY_NAME=Alpine\n"}, "Alpine"),
        ("os", {"usr/lib/os-release": 'PRETTY_NAME="broken\n'}, "broken"),
        ("kernel", {"proc/sys/kernel/osrelease": "5.15.0-91-generic\n"}, "5.15.0-91-generic"),
        ("container", {"proc/1/comm": "systemd\n", "proc/1/cgroup": "0::/init.scope\n"}, "none"),
        ("container", {".dockerenv": ""}, "docker"),
        ("container", {"run/.containerenv": ""}, "podman"),
        ("container", {"run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
        ("container", {"proc/1/environ": "PATH=/bin\0container=lxc\0SECRET=x\0"}, "lxc"),
        ("container", {"proc/1/cgroup": "12:cpu:/kubepods/burstable/pod1/abc\n"}, "kubernetes"),
        ("container", {"proc/1/cgroup": "0::/machine.slice/libpod-123.scope\n"}, "podman"),
    ],
)
def test_a_fact_is_read_from_the_kernels_files(node: Node, name: str, files: Files, value: str) -> None:
    node.write(files)
    assert node.fact(name) == Fact(value)


@pytest.mark.parametrize(
    ("name", "files", "reason"),
    [
        ("machine", {VENDOR: "ASUSTeK", PRODUCT: "To Be Filled By O.E.M. by More"}, "placeholder 'To Be Filled By"),
        ("machine", {VENDOR: "ASUSTeK", PRODUCT: " \n"}, "placeholder ''"),
        ("cpu", ARM, "no model name, and lscpu could not be started"),
        (
            "network",
            {
                "sys/class/infiniband/rxe0/ports/1/rate": EDR,
                "sys/class/infiniband/rxe0/ports/1/link_layer": "Ethernet",
                "sys/class/infiniband/rxe0/ports/1/state": "4: ACTIVE",
            },
            "no physical interface",
        ),
        ("network", ethernet("eth0", "-1"), "the speed of eth0 is reported as '-1'"),
        ("network", ethernet("eth0", "4294967295"), "'4294967295'"),
        ("network", ethernet("eth0", None), "of eth0 is not readable"),
        ("network", {**ethernet("eno1", "1000"), **ethernet("ens1", "-1")}, "the speed of ens1"),
        (
            "network",
            {**fabric("a", HDR, state="2: INIT"), **fabric("b", "?"), **ethernet("eth0", None, state="down")},
            "a port 1 is INIT, b port 1 is active without a readable rate, eth0 is down",
        ),
        ("os", {"etc/os-release": "NAME=Something\n"}, "no PRETTY_NAME"),
        ("container", {"proc/1/comm": "bash\n", "proc/1/cgroup": "0::/\n"}, "process 1 is 'bash'"),
        ("docker", {}, "docker: not found"),
    ],
)
def test_what_the_kernel_does_not_say_is_absent_with_the_reason(
    node: Node, name: str, files: Files, reason: str
) -> None:
    node.write(files)
    assert reason in absent_reason(node.fact(name))


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        (
            "CPU(s):   128\nModel name:   Kunpeng-920\nCore(s) per socket:   64\nSocket(s):   2\n",
            "2 x Kunpeng-920 (128 cores)",
        ),
        (
            "CPU(s):   96\n  Model name:   Neoverse-N1\n    Core(s) per cluster: 96\n    Socket(s):   -\n",
            "Neoverse-N1 (96 logical CPUs)",
        ),
        (
            "CPU(s): 8\nModel name: Cortex-A55\nCore(s) per socket: 4\nSocket(s): 1\nModel name: Cortex-A76\n",
            "Cortex-A55 + Cortex-A76 (8 logical CPUs)",
        ),
    ],
)
def test_arm_cpus_are_named_by_lscpu(node: Node, printed: str, value: str) -> None:
    node.write(ARM)
    node.tools["lscpu"] = CommandOutput(0, printed, "")
    assert node.fact("cpu") == Fact(value)


@pytest.mark.parametrize(
    ("tool", "name", "output", "reason"),
    [
        ("lscpu", "cpu", CommandOutput(1, "", ""), "no model name, and lscpu: ended with 1"),
        ("lscpu", "cpu", CommandOutput(0, "Model name: -\n", ""), "neither /proc/cpuinfo nor lscpu"),
        ("docker", "docker", CommandOutput(None, "", "", "docker did not end within 2 s"), "did not end within 2 s"),
        ("docker", "docker", CommandOutput(126, "", "permission denied\nmore\n"), "docker: permission denied"),
        ("docker", "docker", CommandOutput(0, "podman version 4.3.1\n", ""), "no version: 'podman version 4.3.1'"),
    ],
)
def test_a_tool_that_fails_is_quoted(node: Node, tool: str, name: str, output: CommandOutput, reason: str) -> None:
    node.write(ARM)
    node.tools[tool] = output
    assert reason in absent_reason(node.fact(name))


def test_docker_is_its_version_number(node: Node) -> None:
    node.tools["docker"] = CommandOutput(0, "Docker version 18.09.1-ce, build 4c52b90\n", "")
    assert node.fact("docker") == Fact("18.09.1-ce")


@pytest.mark.parametrize(
    ("variable", "kind"), [("KUBERNETES_SERVICE_HOST", "kubernetes"), ("APPTAINER_CONTAINER", "apptainer")]
)
def test_variables_that_tell_of_a_container(node: Node, variable: str, kind: str) -> None:
    node.write({".dockerenv": ""})
    node.environ[variable] = "10.0.0.1"
    assert node.fact("container") == Fact(kind)


@pytest.mark.parametrize("content", [None, b"\xff\xfe:\x00=\n\n'\"::\n"])
def test_an_empty_machine_and_one_of_garbage_give_every_fact_and_never_raise(node: Node, content: bytes | None) -> None:
    if content is not None:
        files = [VENDOR, PRODUCT, *ARM, "etc/os-release", "proc/1/cgroup", "proc/1/environ", "proc/1/comm"]
        node.write(dict.fromkeys([*files, *fabric("x", ""), *ethernet("e", ""), "proc/sys/kernel/osrelease"], ""))
        for path in node.root.rglob("*"):
            if path.is_file():
                path.write_bytes(content)
        node.tools = dict.fromkeys(("lscpu", "docker", "git"), CommandOutput(0, "\x00:\n'", ""))
    environment = node.capture(packages=("no-such-distribution", ""))
    assert tuple(environment.facts) == ENVIRONMENT_FACTS
    assert (environment.packages, environment.variables) == ({}, {})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_real_machine_is_what_python_says_it_is() -> None:
    facts = capture_environment(Machine(), ["pytest"]).facts
    assert facts["kernel"].value == os.uname().release
    assert facts["os"].value == platform.freedesktop_os_release()["PRETTY_NAME"]
    assert facts["python"].value == f"{platform.python_implementation()} {platform.python_version()}"


def distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_framework_is_told_without_importing_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert absent_reason(node.fact("framework")) == f"torch is not installed in {sys.executable}"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    assert "has no distribution metadata" in absent_reason(node.fact("framework"))
    distribution(tmp_path / "site", "torch", "2.1.0+metax2.29")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert node.fact("framework") == Fact("torch 2.1.0+metax2.29")


def test_only_installed_packages_are_listed(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "accelerate", "0.30.1")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert node.capture(packages=("accelerate", "peft", "broken")).packages == {"accelerate": "0.30.1"}


# --- the commit -------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed work tree of the product's shape. No GIT_* variable of the caller may lead git elsewhere."""
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(node_environment, "_TOOL_SECONDS", 600.0)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    source = tmp_path / "tree/core/flagperf"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (tmp_path / "tree/.gitignore").write_text(".venv/\n")
    git(tmp_path / "tree", "init", "-q")
    git(tmp_path / "tree", "add", ".")
    git(tmp_path / "tree", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return source


def git(tree: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_clean_work_tree_gives_its_commit_and_is_not_touched(package: Path) -> None:
    top = package.parent.parent
    (top / "flagperf.toml").write_text("")  # the user's own files at the top do not count
    (top / "注.md").write_text("")
    os.utime(package / "__init__.py", (1, 1))
    index = top / ".git/index"
    before = index.stat().st_mtime_ns, index.read_bytes()
    assert source_commit(Machine(), package) == Fact(git(package, "rev-parse", "HEAD"))
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


@pytest.mark.parametrize("path", ["core/flagperf/__init__.py", "core/flagperf/new.py", "cases/mine/case.py"])
def test_changed_and_new_code_is_told(package: Path, path: str) -> None:
    changed = package.parent.parent / path
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text("changed = True\n")
    assert source_commit(Machine(), package) == Fact(git(package, "rev-parse", "HEAD") + "+changes")


def test_a_virtual_environment_inside_a_project_is_not_that_projects_commit(package: Path) -> None:
    installed = package.parent.parent / ".venv/lib/flagperf"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert "is not tracked by git" in absent_reason(source_commit(Machine(), installed))


def test_a_work_tree_without_a_commit_is_absent(package: Path) -> None:
    git(package, "update-ref", "-d", "HEAD")
    assert "has no readable commit" in absent_reason(source_commit(Machine(), package))


def test_a_status_that_fails_is_not_taken_for_clean(package: Path) -> None:
    def run_tool(argv: list[str], timeout_seconds: float) -> CommandOutput:
        if "status" in argv:
            return CommandOutput(None, "", "", "git did not end within 2 s")
        return Machine().run_tool(argv, timeout_seconds=timeout_seconds)

    fact = source_commit(Machine(run_tool=run_tool), package)
    assert fact == Fact(git(package, "rev-parse", "HEAD") + "+unknown")


COMMIT = "0123456789abcdef0123456789abcdef01234567"
FROM_GIT = {"url": "https://me:secret@host/flagperf.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


def install(site: Path, direct_url: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    distribution(site, "flagperf", "0.1.0")
    (site / "flagperf-0.1.0.dist-info/direct_url.json").write_text(json.dumps(direct_url))
    (site / "flagperf").mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    return site / "flagperf"


def test_an_installation_from_git_gives_the_commit_it_came_from(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = install(tmp_path / "site", FROM_GIT, monkeypatch)
    assert source_commit(node.machine(), source) == Fact(COMMIT)
    assert source_commit(node.machine(), tmp_path / "another/flagperf").how == "absent"


@pytest.mark.parametrize("direct_url", [{}, [], {"vcs_info": {"commit_id": "main"}}, {"dir_info": {"editable": True}}])
def test_other_installations_have_no_commit(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: object
) -> None:
    source = install(tmp_path / "site", direct_url, monkeypatch)
    expected = f"{source} is not tracked by git (git: not found) and was not installed from a commit"
    assert absent_reason(source_commit(node.machine(), source)) == expected


# --- variables --------------------------------------------------------------------------------------------------------


def test_only_listed_variables_are_recorded(node: Node) -> None:
    secrets = {
        "HF_TOKEN": "hf_0123456789", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "HTTPS_PROXY": "http://me:hunter2@proxy:3128", "OMP_NUM_THREADS_TOKEN": "hunter2", "HOME": "/home/me",
    }  # fmt: skip
    node.environ.update(secrets, OMP_NUM_THREADS="8", MALLOC_CONF="", ACME_VISIBLE_DEVICES="0,1", ACME_OTHER="x")
    node.write({"proc/1/environ": "PIN=hunter3\0container=docker\0"})
    environment = node.capture(extra_variables=("ACME_VISIBLE_DEVICES",))
    assert environment.variables == {"OMP_NUM_THREADS": "8", "MALLOC_CONF": "", "ACME_VISIBLE_DEVICES": "0,1"}
    assert not [secret for secret in (*secrets.values(), "hunter3") if secret in repr(environment)]


@pytest.mark.parametrize("name", ["ACME_TOKEN", "acme_api_key", "ACME_PASSWORD"])
def test_an_adapter_cannot_ask_for_a_secret(node: Node, name: str) -> None:
    node.environ[name] = "hunter2"
    assert node.capture(extra_variables=(name,)).variables == {name: "(redacted)"}


@pytest.mark.parametrize(
    ("value", "is_secret"),
    [
        ("a.so https://hunter2@host", True),
        ("redis://:hunter2@host:6379/0", True),
        ("https://me:hun/ter2@host", True),
        ("me:hunter2@host", True),
        ("backend=x,token=hunter2", True),
        ("http://host/?API_KEY=hunter2", True),
        ("/opt/a/libjemalloc.so.2:/opt/b@2/libomp.so", False),
        ("expandable_segments:True,max_split_size_mb:128", False),
    ],
)
def test_credentials_in_a_listed_variable_are_redacted(node: Node, value: str, is_secret: bool) -> None:
    node.environ["LD_PRELOAD"] = value
    assert node.capture().variables == {"LD_PRELOAD": "(redacted)" if is_secret else value}


def test_the_list_has_no_name_that_sounds_secret() -> None:
    words = {word for name in RESULT_VARIABLES for word in name.split("_")}
    assert not words & {"TOKEN", "KEY", "PASSWORD", "SECRET", "URL", "PROXY"}


# --- simulated machines -----------------------------------------------------------------------------------------------


def test_only_1_simulates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAGPERF_SIMULATE_ROOT", str(tmp_path))
    for value, simulated in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("FLAGPERF_SIMULATE", value)
        assert is_simulated() is simulated
        assert node_machine().root == (tmp_path if simulated else Path("/"))
    monkeypatch.setenv("FLAGPERF_SIMULATE", "yes")
    with pytest.raises(BadInput, match="FLAGPERF_SIMULATE='yes'"):
        is_simulated()


@pytest.mark.parametrize("root", ["nowhere", "/" + "a" * 5_000])
def test_a_root_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: str) -> None:
    monkeypatch.setenv("FLAGPERF_SIMULATE", "1")
    monkeypatch.setenv("FLAGPERF_SIMULATE_ROOT", str(tmp_path / root))
    with pytest.raises(BadInput, match=r"FLAGPERF_SIMULATE_ROOT=.* is not a folder"):
        node_machine()
