"""Where machines meet: the address that each announces, and two of them in network namespaces."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.recipes import tiny_translator
from tformer_cli.errors import UsageError
from tformer_cli.trainer.processes import agent
from tformer_cli.trainer.processes.agent import ANYWHERE, GLOO_INTERFACE, Place, find_place

LIMIT = 300.0
"""Seconds after which two machines have hung."""


@pytest.fixture
def network(monkeypatch):
    """A machine called node1, at 10.9.0.1; its names, routes and interfaces may be changed."""

    machine = SimpleNamespace(
        names={"node1": "127.0.1.1", "node2": "10.9.0.2"},
        interfaces={"eth0": "10.9.0.1"},
        default_route=None,
    )

    def address_of(host, port, **how):
        there = machine.names.get(host, host)
        if not there[0].isdigit():
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, how["type"], 17, "", (there, port))]

    def source_address(family, there):
        if there == ANYWHERE:
            if machine.default_route is None:
                raise OSError(101, "Network is unreachable")
            return machine.default_route
        return "127.0.0.1" if there[0].startswith("127.") else "10.9.0.1"

    monkeypatch.setattr(agent.socket, "getaddrinfo", address_of)
    monkeypatch.setattr(agent, "_source_address", source_address)
    monkeypatch.setattr(agent, "_interfaces", lambda: machine.interfaces)
    monkeypatch.delenv(GLOO_INTERFACE, raising=False)
    return machine


@pytest.mark.parametrize(
    ("host", "is_meeting_point"),
    [("node1", True), ("10.9.0.1", True), ("node2", False), ("10.9.0.2", False)],
)
def test_a_machine_announces_the_address_of_its_route(network, host, is_meeting_point):
    place = Place(address="10.9.0.1", is_meeting_point=is_meeting_point, interface="eth0")
    assert find_place(f"{host}:29500") == place


def test_one_machine_meets_itself_on_the_loopback(network):
    for host in ("localhost", "127.0.0.1"):
        network.names = {"localhost": "127.0.0.1"}
        place = Place(address="127.0.0.1", is_meeting_point=True)
        assert find_place(f"{host}:29500") == place


def test_of_several_addresses_the_default_route_or_the_variable_decides(network, monkeypatch):
    network.interfaces = {"eth0": "10.9.0.1", "docker0": "172.17.0.1"}
    with pytest.raises(
        UsageError, match=r"node1:29500: .* \(10\.9\.0\.1, 172\.17\.0\.1\); name one"
    ):
        find_place("node1:29500")
    assert find_place("10.9.0.1:29500").interface == "eth0"
    network.default_route = "172.17.0.1"
    assert find_place("node1:29500").address == "172.17.0.1"
    monkeypatch.setenv(GLOO_INTERFACE, "eth0")
    assert find_place("node1:29500").address == find_place("node2:1").address == "10.9.0.1"


def test_a_machine_without_a_network_or_a_name_that_is_unknown(network):
    network.interfaces = {}
    assert find_place("node1:29500") == Place(address="127.0.0.1", is_meeting_point=True)
    with pytest.raises(
        UsageError, match=r"--meet node3:29500: cannot be reached .*; give an addre"
    ):
        find_place("node3:29500")


def test_interfaces_are_those_of_the_system():
    assert not any(address.startswith("127.") for address in agent._interfaces().values())
    assert find_place("127.0.0.1:1").address == "127.0.0.1"


DEBIAN = ("127.0.1.1 node1\n10.9.0.2 node2\n", "127.0.1.1 node2\n10.9.0.1 node1\n")
"""Names that Debian's installer writes down: a machine's own stands for 127.0.1.1."""


def run(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def machines(tmp_path):
    """Process ids of two machines on one cable: namespaces of networks, host names and mounts."""
    held = []
    for number, names in enumerate(DEBIAN, 1):
        hosts = tmp_path / f"hosts{number}"
        hosts.write_text(f"127.0.0.1 localhost\n{names}")
        script = (
            f"mount --bind {hosts} /etc/hosts && hostname node{number} && ip link set lo up "
            "&& echo ready && exec sleep 1000"
        )
        command = ["unshare", "-n", "-m", "-u", "sh", "-c", script]
        try:
            held.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        except OSError as error:
            pytest.skip(f"no namespaces here: {error}")
    try:
        if any(holder.stdout.readline() != "ready\n" for holder in held):
            pytest.skip("namespaces need root and iproute2")
        first, second = (str(holder.pid) for holder in held)
        cable = ["ip", "link", "add", "va", "netns", first, "type", "veth"]
        if run(*cable, "peer", "name", "vb", "netns", second).returncode:
            pytest.skip("no cable between namespaces here")
        for number, (pid, name) in enumerate(((first, "va"), (second, "vb")), 1):
            up = f"ip addr add 10.9.0.{number}/24 dev {name} && ip link set {name} up"
            assert run("nsenter", "-t", pid, "-n", "sh", "-c", up).returncode == 0
        yield first, second
    finally:
        for holder in held:
            holder.kill()
            holder.communicate()


def train_on(machines, directory, meeting_point, options):
    """Trains on both machines; returns (exit status, messages) of each."""
    recipe = directory / "tiny.toml"
    make = tiny_translator(directory, training={"max_steps": 10}, validation={"every": 10})
    recipe.write_text(make().to_toml())
    root = str(Path(__file__).parents[3])
    env = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [
                *("nsenter", "-t", pid, "-n", "-m", "-u", sys.executable, "-m", "tformer_cli"),
                *("train", str(recipe), "-o", str(directory / f"run{number}"), "--device", "cpu"),
                *("--processes", "1", "--nodes", "2", "--meet", meeting_point, "-q", *own),
            ],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, (pid, own) in enumerate(zip(machines, options, strict=True), 1)
    ]
    try:
        ended = [process.communicate(timeout=LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(p.returncode, output) for p, (_, output) in zip(started, ended, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("meeting_point", ["node1:29500", "10.9.0.1:29500"])
def test_machines_whose_own_names_are_loopback_addresses_train(machines, tmp_path, meeting_point):
    assert train_on(machines, tmp_path, meeting_point, ((), ())) == [(0, ""), (0, "")]
    assert (tmp_path / "run1/model.safetensors").is_file()
    assert not (tmp_path / "run2").exists()


@pytest.mark.long
def test_both_machines_end_where_one_fails(machines, tmp_path):
    bad = ("--set", 'data.valid=[{tsv="missing.tsv"}]')
    here, there = train_on(machines, tmp_path, "node1:29500", ((), bad))
    assert here[0] == 1
    assert here[1].startswith("error: --meet node1:29500: the run has ended on the other machines;")
    assert there[0] == 2
    assert there[1].startswith("error: process 1 has another recipe than the first: ")
    assert here[1].count("\n") == there[1].count("\n") == 1


@pytest.mark.long
def test_machines_that_cannot_reach_each_other_name_the_variable(machines, tmp_path, monkeypatch):
    monkeypatch.setenv(GLOO_INTERFACE, "lo")
    ended = train_on(machines, tmp_path, "node1:29500", ((), ()))
    assert [status for status, _ in ended] == [1, 1]
    assert all(output.count("\n") == 1 for _, output in ended)
    assert any("set GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME" in output for _, output in ended)
