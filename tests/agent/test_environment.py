"""Machines laid out in a temporary directory, one fact at a time; git repositories and distributions are real."""

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flagperf.agent import node_environment as agent_environment
from flagperf.agent.node_environment import RESULT_VARIABLES, capture_environment, source_commit
from flagperf.api import CommandOutput, Machine
from flagperf.spec.node_facts import ENVIRONMENT_FACTS, Environment, Fact

DMI = "sys/class/dmi/id"


class Node:
    """A machine below tmp_path: files by their path, tools by what they print."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self.tools: dict[str, CommandOutput] = {}
        self.calls: list[list[str]] = []

    def file(self, path: str, text: str = "") -> "Node":
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return self

    def tool(
        self, name: str, stdout: str = "", returncode: int | None = 0, stderr: str = "", problem: str = ""
    ) -> None:
        self.tools[name] = CommandOutput(returncode, stdout, stderr, problem)

    def run_tool(self, argv: list[str], timeout_seconds: float = 10.0) -> CommandOutput:
        self.calls.append(list(argv))
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


def plain(fact: Fact) -> Fact:
    """Without the message that says the reason as data."""
    assert fact.message is not None and str(fact.message) == fact.reason
    return msgspec.structs.replace(fact, message=None)


def is_absent(fact: Fact, reason: str) -> bool:
    return fact.value is None and fact.how == "absent" and reason in fact.reason


# The whole


def test_an_empty_machine_gives_every_fact_with_a_reason_and_never_raises(node: Node) -> None:
    environment = node.capture(packages=("no-such-distribution", ""))
    assert tuple(environment.facts) == ENVIRONMENT_FACTS
    for name in ("machine", "cpu", "network", "os", "kernel", "container", "docker"):
        fact = environment.facts[name]
        assert fact.value is None and fact.how == "absent" and fact.reason, name
    assert environment.packages == {}
    assert environment.variables == {}


def test_garbage_in_every_file_does_not_raise(node: Node) -> None:
    paths = [
        f"{DMI}/sys_vendor", f"{DMI}/product_name", "proc/cpuinfo", "etc/os-release", "proc/1/cgroup", "proc/1/environ",
        "proc/1/comm", "proc/sys/kernel/osrelease", "sys/class/infiniband/x/ports/1/rate",
        "sys/class/infiniband/x/ports/1/state", "sys/class/infiniband/x/device/vendor", "sys/class/net/e/speed",
        "sys/class/net/e/operstate", "sys/class/net/e/device/vendor",
    ]  # fmt: skip
    for path in paths:
        node.file(path)
        (node.root / path).write_bytes(b"\xff\xfe:\x00=\n\n'\"::\n")
    for tool in ("lscpu", "docker", "git"):
        node.tool(tool, stdout="\x00:\n'")
    assert tuple(node.capture().facts) == ENVIRONMENT_FACTS


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_real_machine_is_what_python_says_it_is() -> None:
    facts = capture_environment(Machine(), ["pytest"]).facts
    assert facts["kernel"].value == os.uname().release
    assert facts["os"].value == platform.freedesktop_os_release()["PRETTY_NAME"]
    assert facts["python"].value == f"{platform.python_implementation()} {platform.python_version()}"
    cpuinfo = Path("/proc/cpuinfo").read_text()
    if "model name" in cpuinfo:
        model, _, cores = (facts["cpu"].value or "").rpartition(" (")
        assert model.split(" x ")[-1].split() == cpuinfo.split("model name")[1].split("\n")[0].split()[1:]
        assert int(cores.split()[0]) >= 1


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from flagperf.api import Machine; "
        "from flagperf.agent.node_environment import capture_environment; "
        "capture_environment(Machine(), ['torch', 'numpy']); "
        "sys.exit(' '.join({'torch', 'numpy', 'accelerate'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


# machine


@pytest.mark.parametrize(
    ("maker", "product", "expected"),
    [
        ("Inspur", "NF5688M6", "Inspur NF5688M6"),
        ("Supermicro\n", "  SYS-420GP-TNR \n", "Supermicro SYS-420GP-TNR"),
        ("HPE", "HPE Cray XD670", "HPE Cray XD670"),
        ("To be filled by O.E.M.", "G292-Z20-00", "G292-Z20-00"),
    ],
)
def test_machine_is_maker_and_product(node: Node, maker: str, product: str, expected: str) -> None:
    node.file(f"{DMI}/sys_vendor", maker).file(f"{DMI}/product_name", product)
    assert node.fact("machine") == Fact(expected)


@pytest.mark.parametrize(
    "product", ["To be filled by O.E.M.", "To Be Filled By O.E.M. by More String", "System Product Name",
                "Default string", "", " \n", "Not Specified"],
)  # fmt: skip
def test_a_placeholder_is_no_machine(node: Node, product: str) -> None:
    node.file(f"{DMI}/sys_vendor", "ASUSTeK COMPUTER INC.").file(f"{DMI}/product_name", product)
    assert is_absent(node.fact("machine"), f"placeholder {product.strip()!r}")


def test_an_arm_board_is_named_by_its_device_tree(node: Node) -> None:
    node.file("proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.4\x00")
    assert node.fact("machine") == Fact("Raspberry Pi 4 Model B Rev 1.4")


# cpu


def cpuinfo(name: str, sockets: int, cores: int, threads: int = 1) -> str:
    block = "processor\t: {n}\nmodel name\t: {name}\nphysical id\t: {socket}\ncore id\t: {core}\ncpu cores\t: {cores}\n"
    places = [(s, c) for _ in range(threads) for s in range(sockets) for c in range(cores)]
    return "\n".join(block.format(n=n, name=name, socket=s, core=c, cores=cores) for n, (s, c) in enumerate(places))


def test_two_sockets_with_two_threads_per_core(node: Node) -> None:
    node.file("proc/cpuinfo", cpuinfo("AMD EPYC 7742 64-Core Processor", sockets=2, cores=64, threads=2))
    assert node.fact("cpu") == Fact("2 x AMD EPYC 7742 64-Core Processor (128 cores)")
    assert ["lscpu"] not in node.calls


def test_one_socket_has_no_multiplier_and_spaces_are_collapsed(node: Node) -> None:
    node.file("proc/cpuinfo", cpuinfo("Intel(R) Xeon(R) CPU           @ 2.20GHz", sockets=1, cores=1))
    assert node.fact("cpu") == Fact("Intel(R) Xeon(R) CPU @ 2.20GHz (1 core)")


def test_different_sockets_are_both_named(node: Node) -> None:
    other = "processor: 9\nmodel name: CPU B\nphysical id: 1\ncpu cores: 8\n"
    node.file("proc/cpuinfo", cpuinfo("CPU A", sockets=1, cores=4) + "\n" + other)
    assert node.fact("cpu") == Fact("CPU A + CPU B (12 cores)")


def test_without_a_topology_logical_cpus_are_counted_as_such(node: Node) -> None:
    node.file(
        "proc/cpuinfo", "processor: 0\nmodel name: Phytium,S5000C/64\n\nprocessor: 1\nmodel name: Phytium,S5000C/64\n"
    )
    assert node.fact("cpu") == Fact("Phytium,S5000C/64 (2 logical CPUs)")


ARM_CPUINFO = "processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n"


def test_arm_cpus_are_named_by_lscpu(node: Node) -> None:
    node.file("proc/cpuinfo", ARM_CPUINFO)
    node.tool("lscpu", "CPU(s):   128\nModel name:   Kunpeng-920\nCore(s) per socket:   64\nSocket(s):   2\n")
    assert node.fact("cpu") == Fact("2 x Kunpeng-920 (128 cores)")


def test_arm_clusters_instead_of_sockets(node: Node) -> None:
    node.file("proc/cpuinfo", ARM_CPUINFO)
    node.tool(
        "lscpu",
        "CPU(s):   96\n  On-line CPU(s) list: 0-95\nVendor ID:   ARM\n  Model name:   Neoverse-N1\n"
        "    Core(s) per cluster: 96\n    Socket(s):         -\n    Cluster(s):        1\n  NUMA node0 CPU(s):  0-95\n",
    )
    assert node.fact("cpu") == Fact("Neoverse-N1 (96 logical CPUs)")


def test_two_kinds_of_core_are_both_named(node: Node) -> None:
    node.file("proc/cpuinfo", ARM_CPUINFO)
    node.tool(
        "lscpu",
        "CPU(s): 8\nModel name: Cortex-A55\nCore(s) per socket: 4\nSocket(s): 1\nModel name: Cortex-A76\n"
        "Core(s) per socket: 4\nSocket(s): 1\n",
    )
    assert node.fact("cpu") == Fact("Cortex-A55 + Cortex-A76 (8 logical CPUs)")


def test_no_name_anywhere_is_absent(node: Node) -> None:
    node.file("proc/cpuinfo", ARM_CPUINFO)
    assert is_absent(node.fact("cpu"), "no model name, and lscpu could not be started")
    node.tool("lscpu", returncode=1)
    assert is_absent(node.fact("cpu"), "no model name, and lscpu: ended with 1")
    node.tool("lscpu", "Model name: -\n")
    assert is_absent(node.fact("cpu"), "neither /proc/cpuinfo nor lscpu")


# network


def fabric(node: Node, adapter: str, rate: str, layer: str = "InfiniBand", state: str = "4: ACTIVE") -> None:
    port = f"sys/class/infiniband/{adapter}/ports/1"
    node.file(f"{port}/rate", rate).file(f"{port}/link_layer", layer).file(f"{port}/state", state)
    node.file(f"sys/class/infiniband/{adapter}/device/vendor", "0x15b3")


def ethernet(
    node: Node, name: str, speed: str | None, state: str = "up", kind: str = "1", physical: bool = True
) -> None:
    interface = f"sys/class/net/{name}"
    node.file(f"{interface}/operstate", state).file(f"{interface}/type", kind)
    if speed is not None:
        node.file(f"{interface}/speed", speed)
    if physical:
        node.file(f"{interface}/device/vendor", "0x8086")


def test_active_infiniband_ports_are_counted(node: Node) -> None:
    fabric(node, "mlx5_0", "200 Gb/sec (4X HDR)")
    fabric(node, "mlx5_1", "200 Gb/sec (4X HDR)")
    ethernet(node, "eth0", "400000")
    assert node.fact("network") == Fact("InfiniBand, 2 x 200 Gb/s")


def test_roce_port_that_is_down_does_not_count(node: Node) -> None:
    fabric(node, "mlx5_0", "100 Gb/sec (4X EDR)", layer="Ethernet")
    fabric(node, "mlx5_1", "40 Gb/sec (4X QDR)", layer="Ethernet", state="1: DOWN")
    assert node.fact("network") == Fact("RoCE, 100 Gb/s")


def test_a_dead_fabric_leaves_ethernet(node: Node) -> None:
    fabric(node, "mlx5_1", "40 Gb/sec (4X QDR)", layer="Ethernet", state="1: DOWN")
    ethernet(node, "eth0", "25000")
    assert node.fact("network") == Fact("Ethernet, 25 Gb/s")


def test_mixed_fabrics_are_listed_fastest_first(node: Node) -> None:
    fabric(node, "mlx5_0", "25 Gb/sec (1X EDR)", layer="Ethernet")
    for index in range(1, 9):
        fabric(node, f"mlx5_{index}", "400 Gb/sec (4X NDR)")
    assert node.fact("network") == Fact("InfiniBand, 8 x 400 Gb/s; RoCE, 25 Gb/s")


def test_iwarp_and_unnamed_link_layers_are_not_called_roce(node: Node) -> None:
    fabric(node, "irdma0", "100 Gb/sec", layer="Ethernet")
    node.file("sys/class/infiniband/irdma0/node_type", "4: RNIC")
    fabric(node, "rdmap0", "100 Gb/sec", layer="Unspecified")
    assert node.fact("network") == Fact("RDMA, 100 Gb/s; iWARP, 100 Gb/s")


def test_virtual_functions_do_not_add_wires(node: Node) -> None:
    fabric(node, "mlx5_0", "200 Gb/sec (4X HDR)")
    fabric(node, "mlx5_2", "200 Gb/sec (4X HDR)")
    node.file("sys/class/infiniband/mlx5_2/device/physfn/vendor")
    assert node.fact("network") == Fact("InfiniBand, 200 Gb/s")


def test_virtual_functions_alone_are_counted(node: Node) -> None:
    fabric(node, "mlx5_2", "200 Gb/sec (4X HDR)")
    node.file("sys/class/infiniband/mlx5_2/device/physfn/vendor")
    assert node.fact("network") == Fact("InfiniBand, 200 Gb/s")


def test_emulated_fabric_is_no_network(node: Node) -> None:
    port = "sys/class/infiniband/rxe0/ports/1"
    node.file(f"{port}/rate", "100 Gb/sec").file(f"{port}/link_layer", "Ethernet").file(f"{port}/state", "4: ACTIVE")
    assert is_absent(node.fact("network"), "no physical interface")


def test_the_fastest_physical_ethernet_interfaces_count(node: Node) -> None:
    ethernet(node, "eno1", "1000")
    ethernet(node, "ens1f0", "25000")
    ethernet(node, "ens1f1", "25000")
    ethernet(node, "ens2", "100000", state="down")
    ethernet(node, "lo", "1000000", physical=False)
    ethernet(node, "docker0", "200000", physical=False)
    ethernet(node, "ib0", "200000", kind="32")
    assert node.fact("network") == Fact("Ethernet, 2 x 25 Gb/s")


def test_a_driver_that_never_sets_the_state_is_believed_when_it_gives_a_speed(node: Node) -> None:
    ethernet(node, "eth0", "2500", state="unknown")
    assert node.fact("network") == Fact("Ethernet, 2.5 Gb/s")


@pytest.mark.parametrize(
    ("speed", "reason"),
    [
        ("-1", "the speed of eth0 is reported as '-1'"),
        ("4294967295", "'4294967295'"),
        (None, "of eth0 is not readable"),
    ],
)
def test_an_unknown_speed_is_absent(node: Node, speed: str | None, reason: str) -> None:
    ethernet(node, "eth0", speed)
    assert is_absent(node.fact("network"), reason)


def test_beside_an_unknown_speed_the_fastest_is_not_known(node: Node) -> None:
    ethernet(node, "eno1", "1000")
    ethernet(node, "ens1", "-1")
    assert is_absent(node.fact("network"), "the speed of ens1")


def test_wireless_does_not_make_the_wire_unknown(node: Node) -> None:
    ethernet(node, "eth0", "1000")
    ethernet(node, "wlan0", None)
    node.file("sys/class/net/wlan0/phy80211/name", "phy0")
    assert node.fact("network") == Fact("Ethernet, 1 Gb/s")


def test_absent_network_says_what_was_there(node: Node) -> None:
    fabric(node, "mlx5_0", "200 Gb/sec", state="2: INIT")
    fabric(node, "mlx5_1", "unknown")
    ethernet(node, "eth0", None, state="down")
    reason = "mlx5_0 port 1 is INIT, mlx5_1 port 1 is active without a readable rate, eth0 is down"
    assert plain(node.fact("network")) == Fact(None, "absent", reason)


# os, kernel


def test_os_is_the_pretty_name(node: Node) -> None:
    node.file("etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.3 LTS"\nID=ubuntu\n')
    assert node.fact("os") == Fact("Ubuntu 22.04.3 LTS")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("PRETTY_NAME='Kylin Linux Advanced Server V10 (Halberd)'", "Kylin Linux Advanced Server V10 (Halberd)"),
        ("PRETTY_NAME=Alpine", "Alpine"),
        ('PRETTY_NAME="broken', "broken"),
    ],
)
def test_os_names_with_odd_quotes(node: Node, line: str, expected: str) -> None:
    node.file("usr/lib/os-release", line + "\n")
    assert node.fact("os") == Fact(expected)


def test_os_without_a_pretty_name_is_absent(node: Node) -> None:
    node.file("etc/os-release", "NAME=Something\n")
    assert is_absent(node.fact("os"), "no PRETTY_NAME")


def test_kernel_is_read_below_the_root(node: Node) -> None:
    node.file("proc/sys/kernel/osrelease", "5.15.0-91-generic\n")
    assert node.fact("kernel") == Fact("5.15.0-91-generic")


# container


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("proc/1/environ", "PATH=/bin\0container=lxc\0SECRET=x\0", "lxc"),
        ("proc/1/environ", "container=oci", "oci"),
        ("proc/1/cgroup", "12:cpu:/kubepods/burstable/pod1/abc\n", "kubernetes"),
        ("proc/1/cgroup", "12:cpu:/docker/0123456789ab\n0::/\n", "docker"),
        ("proc/1/cgroup", "0::/machine.slice/libpod-123.scope\n", "podman"),
        ("proc/1/cgroup", "0::/system.slice/containerd.service/x\n", "containerd"),
    ],
)
def test_each_sign_of_a_container(node: Node, path: str, text: str, kind: str) -> None:
    node.file("proc/1/comm", "systemd\n").file(path, text)
    assert node.fact("container") == Fact(kind)


@pytest.mark.parametrize(
    ("variable", "kind"), [("KUBERNETES_SERVICE_HOST", "kubernetes"), ("APPTAINER_CONTAINER", "apptainer")]
)
def test_variables_that_tell_of_a_container(node: Node, variable: str, kind: str) -> None:
    node.file(".dockerenv")
    node.environ[variable] = "10.0.0.1"
    assert node.fact("container") == Fact(kind)


@pytest.mark.parametrize("init", ["systemd", "init"])
def test_an_init_system_without_a_sign_is_no_container(node: Node, init: str) -> None:
    node.file("proc/1/comm", f"{init}\n").file("proc/1/cgroup", "0::/init.scope\n")
    assert node.fact("container") == Fact("none")


def test_neither_sign_nor_init_system_is_not_decided(node: Node) -> None:
    node.file("proc/1/comm", "bash\n").file("proc/1/cgroup", "0::/\n")
    assert is_absent(node.fact("container"), "process 1 is 'bash'")


# docker


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Docker version 24.0.7, build afdd53b\n", "24.0.7"),
        ("Docker version 18.09.1-ce, build 4c52b90\n", "18.09.1-ce"),
    ],
)
def test_docker_is_its_version_number(node: Node, output: str, version: str) -> None:
    node.tool("docker", output)
    assert node.fact("docker") == Fact(version)
    assert ["docker", "--version"] in node.calls


def test_docker_that_is_not_there(node: Node) -> None:
    assert plain(node.fact("docker")) == Fact(None, "absent", "docker: not found")


def test_docker_that_does_not_answer_says_so(node: Node) -> None:
    node.tool("docker", returncode=None, problem="docker did not end within 2 s")
    assert plain(node.fact("docker")) == Fact(None, "absent", "docker did not end within 2 s")
    node.tool("docker", returncode=126, stderr="permission denied\nmore\n")
    assert plain(node.fact("docker")) == Fact(None, "absent", "docker: permission denied")


def test_podman_in_dockers_place_is_not_docker(node: Node) -> None:
    node.tool("docker", "podman version 4.3.1\n")
    assert is_absent(node.fact("docker"), "printed no version: 'podman version 4.3.1'")


# framework, packages


def distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_local_part_of_torchs_version_is_kept(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "site", "torch", "2.1.0+metax2.29")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert node.fact("framework") == Fact("torch 2.1.0+metax2.29")


def test_a_python_without_torch_is_named(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert plain(node.fact("framework")) == Fact(None, "absent", f"torch is not installed in {sys.executable}")


def test_torch_without_metadata_is_not_called_missing(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert is_absent(node.fact("framework"), "has no distribution metadata")


def test_only_installed_packages_are_listed(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "accelerate", "0.30.1")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert node.capture(packages=("accelerate", "peft", "broken")).packages == {"accelerate": "0.30.1"}


# commit


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed work tree of the product's shape. No GIT_* variable of the caller may lead git elsewhere."""
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(agent_environment, "_TOOL_SECONDS", 600.0)
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


def test_a_clean_work_tree_gives_its_commit(package: Path) -> None:
    assert source_commit(Machine(), package) == Fact(git(package, "rev-parse", "HEAD"))


def test_a_changed_file_is_told(package: Path) -> None:
    head = git(package, "rev-parse", "HEAD")
    (package / "__init__.py").write_text("changed = True\n")
    assert source_commit(Machine(), package) == Fact(f"{head}+changes")


def test_the_users_files_at_the_top_are_no_change(package: Path) -> None:
    top = package.parent.parent
    (top / "flagperf.toml").write_text("")
    (top / "注.md").write_text("")
    assert source_commit(Machine(), package) == Fact(git(package, "rev-parse", "HEAD"))


@pytest.mark.parametrize("path", ["core/flagperf/new.py", "cases/mine/case.py"])
def test_new_code_is_a_change(package: Path, path: str) -> None:
    new = package.parent.parent / path
    new.parent.mkdir(parents=True, exist_ok=True)
    new.write_text("")
    assert source_commit(Machine(), package) == Fact(git(package, "rev-parse", "HEAD") + "+changes")


def test_looking_does_not_touch_the_work_tree(package: Path) -> None:
    index = package.parent.parent / ".git/index"
    os.utime(package / "__init__.py", (1, 1))
    before = index.stat().st_mtime_ns, index.read_bytes()
    assert source_commit(Machine(), package).how == "captured"
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


def test_a_virtual_environment_inside_a_project_is_not_that_projects_commit(package: Path) -> None:
    installed = package.parent.parent / ".venv/lib/flagperf"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert is_absent(source_commit(Machine(), installed), "is not tracked by git")


def test_a_work_tree_without_a_commit_is_absent(package: Path) -> None:
    git(package, "update-ref", "-d", "HEAD")
    assert is_absent(source_commit(Machine(), package), "has no readable commit")


def test_a_status_that_fails_is_not_taken_for_clean(package: Path) -> None:
    real = Machine()

    def run_tool(argv: list[str], timeout_seconds: float) -> CommandOutput:
        if "status" in argv:
            return CommandOutput(None, "", "", "git did not end within 2 s")
        return real.run_tool(argv, timeout_seconds=timeout_seconds)

    fact = source_commit(Machine(run_tool=run_tool), package)
    assert fact == Fact(git(package, "rev-parse", "HEAD") + "+unknown")


def install(site: Path, direct_url: object) -> Path:
    distribution(site, "flagperf", "0.1.0")
    (site / "flagperf-0.1.0.dist-info/direct_url.json").write_text(json.dumps(direct_url))
    (site / "flagperf").mkdir()
    return site / "flagperf"


COMMIT = "0123456789abcdef0123456789abcdef01234567"
FROM_GIT = {"url": "https://me:secret@host/flagperf.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


def test_an_installation_from_git_gives_the_commit_it_came_from(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = install(tmp_path / "site", FROM_GIT)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert source_commit(node.machine(), source) == Fact(COMMIT)


@pytest.mark.parametrize(
    "direct_url", [{}, [], {"vcs_info": 5}, {"vcs_info": {"commit_id": "main"}}, {"dir_info": {"editable": True}}]
)
def test_other_installations_have_no_commit(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: object
) -> None:
    source = install(tmp_path / "site", direct_url)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    expected = f"{source} is not tracked by git (git: not found) and was not installed from a commit"
    assert plain(source_commit(node.machine(), source)) == Fact(None, "absent", expected)


def test_the_metadata_of_another_copy_is_not_used(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", FROM_GIT)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert source_commit(node.machine(), tmp_path / "elsewhere/flagperf").how == "absent"


# variables


def test_only_listed_variables_are_recorded(node: Node) -> None:
    secrets = {
        "HF_TOKEN": "hf_0123456789", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "PGPASSWORD": "hunter2",
        "HTTPS_PROXY": "http://me:hunter2@proxy:3128", "PIP_INDEX_URL": "https://me:hunter2@index/simple",
        "OMP_NUM_THREADS_TOKEN": "hunter2", "HOME": "/home/me",
    }  # fmt: skip
    node.environ.update(secrets, OMP_NUM_THREADS="8", KMP_AFFINITY="granularity=fine,compact,1,0", MALLOC_CONF="")
    environment = node.capture()
    assert environment.variables == {
        "OMP_NUM_THREADS": "8",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "MALLOC_CONF": "",
    }
    for secret in secrets.values():
        assert secret not in repr(environment)


def test_secrets_of_process_one_do_not_leak(node: Node) -> None:
    node.file("proc/1/environ", "HF_TOKEN=hf_0123456789\0container=docker\0PGPASSWORD=hunter2")
    environment = node.capture()
    assert environment.facts["container"] == Fact("docker")
    assert "hf_0123456789" not in repr(environment) and "hunter2" not in repr(environment)


def test_adapters_add_names_to_the_list(node: Node) -> None:
    node.environ.update(ACME_VISIBLE_DEVICES="0,1", ACME_OTHER="x")
    assert node.capture(extra_variables=("ACME_VISIBLE_DEVICES",)).variables == {"ACME_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize("name", ["ACME_TOKEN", "acme_api_key", "ACME_PASSWORD"])
def test_an_adapter_cannot_ask_for_a_secret(node: Node, name: str) -> None:
    node.environ[name] = "hunter2"
    assert node.capture(extra_variables=(name,)).variables == {name: "(redacted)"}


@pytest.mark.parametrize(
    "value",
    [
        "https://me:hunter2@host/lib.so",
        "a.so https://hunter2@host",
        "redis://:hunter2@host:6379/0",
        "https://me:hun/ter2@host",
        "me:hunter2@host",
        "backend=x,token=hunter2",
        "http://host/?API_KEY=hunter2",
    ],
)
def test_credentials_in_a_listed_variable_are_redacted(node: Node, value: str) -> None:
    node.environ["LD_PRELOAD"] = value
    assert node.capture().variables == {"LD_PRELOAD": "(redacted)"}


@pytest.mark.parametrize(
    "value", ["/opt/a/libjemalloc.so.2:/opt/b@2/libomp.so", "expandable_segments:True,max_split_size_mb:128"]
)
def test_ordinary_values_are_kept(node: Node, value: str) -> None:
    node.environ["LD_PRELOAD"] = value
    assert node.capture().variables == {"LD_PRELOAD": value}


def test_the_list_has_no_name_twice_and_none_that_sounds_secret() -> None:
    assert len(set(RESULT_VARIABLES)) == len(RESULT_VARIABLES)
    words = {word for name in RESULT_VARIABLES for word in name.split("_")}
    assert not words & {"TOKEN", "KEY", "PASSWORD", "SECRET", "URL", "PROXY"}
