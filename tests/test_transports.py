"""Listening sockets of `waystage proxy`: from a service manager, and taken over by a successor."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager

import pytest
from programs import WAYSTAGE, free_ports
from test_programs import backend, one_line, run


@contextmanager
def proxy(*arguments, command=(str(WAYSTAGE),), **options):
    """Start a proxy; yields its line of readiness and its process, which must exit with code 0."""
    process = subprocess.Popen(
        [*command, "proxy", *map(str, arguments)], stdout=subprocess.PIPE, text=True, **options
    )
    try:
        yield re.search(r"ready on (.*) \(", process.stdout.readline()).group(1), process
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def ask(stream, request=b"version\r\n"):
    """Send a request and return the first line of the reply."""
    stream.sendall(request)
    return stream.makefile("rb").readline()


def passing(sockets, names, **environment):
    """Return the options of a process that receives these sockets as systemd passes them."""

    def arrange():
        # Moved out of the way first, because one socket may have the number that another one needs.
        high = [os.dup2(each.fileno(), 50 + index) for index, each in enumerate(sockets)]
        for index, descriptor in enumerate(high):
            os.dup2(descriptor, 3 + index)
            os.close(descriptor)

    variables = {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names, **environment}
    # LISTEN_PID must be the process's own number: the shell sets it, and then executes the program.
    shell = ("sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', str(WAYSTAGE))
    return {
        "command": shell,
        # Descriptors that Python opened itself are closed by exec anyway.
        "close_fds": False,
        "preexec_fn": arrange,
        "env": {**os.environ, **variables},
    }


def test_the_proxy_serves_sockets_from_a_service_manager(tmp_path):
    path = tmp_path / "cache.sock"
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(path))
    unix.listen()
    port = tcp.getsockname()[1]
    options = passing([tcp, unix], "cache:local")
    with backend() as servers, proxy("--server", servers[0], **options) as (ready, process):
        assert ready == f"127.0.0.1:{port} and unix:{path}"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            assert ask(client).startswith(b"VERSION")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(path))
            assert ask(client, b"get k\r\n") == b"END\r\n"
        process.send_signal(signal.SIGTERM)
    assert path.exists(), "the file belongs to the service manager"
    tcp.close()
    unix.close()


@pytest.mark.parametrize("listen", [(), ("--listen", "127.0.0.1:{port}")])
def test_a_successor_that_receives_the_same_sockets_twice_listens_once(tmp_path, listen):
    control, path = tmp_path / "control", tmp_path / "cache.sock"
    with ExitStack() as ends:
        tcp = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = ends.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(path))
        unix.listen()
        port = tcp.getsockname()[1]
        options = passing([tcp, unix], "cache:local")
        arguments = [text.format(port=port) for text in listen]
        arguments += ["--server", ends.enter_context(backend())[0], "--control", control]
        first, old = ends.enter_context(proxy(*arguments, **options))
        assert first == f"127.0.0.1:{port} and unix:{path}"
        for _ in range(2):
            ready, new = ends.enter_context(proxy("--take-over", control, *arguments, **options))
            assert ready == first
            assert old.wait(timeout=20) == 0
            for address in (("127.0.0.1", port), str(path)):
                family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
                with socket.socket(family) as client:
                    client.settimeout(10)
                    client.connect(address)
                    assert ask(client).startswith(b"VERSION")
            old = new
        old.send_signal(signal.SIGTERM)
        assert old.wait(timeout=20) == 0
        assert path.exists(), "the file belongs to the service manager"


def test_a_reload_keeps_sockets_of_the_service_manager_that_the_file_does_not_name(tmp_path):
    file = tmp_path / "proxy.toml"
    with socket.create_server(("127.0.0.1", 0)) as tcp, backend() as servers:
        file.write_text(f'listen = "127.0.0.1:0"\n[[pools]]\nservers = ["{servers[0]}"]\n')
        passed = ("127.0.0.1", tcp.getsockname()[1])
        with proxy("--config", file, **passing([tcp], "cache")) as (ready, process):
            assert ready.endswith(f" and 127.0.0.1:{passed[1]}")
            for _ in range(2):
                process.send_signal(signal.SIGHUP)
                assert "reloaded on" in process.stdout.readline()
                with socket.create_connection(passed, timeout=10) as client:
                    assert ask(client).startswith(b"VERSION")
            process.send_signal(signal.SIGTERM)


def test_the_proxy_ignores_sockets_for_another_process():
    with socket.create_server(("127.0.0.1", 0)) as tcp, backend() as servers:
        options = passing([tcp], "cache") | {"command": (str(WAYSTAGE),)}
        options["env"]["LISTEN_PID"] = "1"
        with proxy("--listen", "127.0.0.1:0", "--server", servers[0], **options) as (ready, process):
            assert ready != f"127.0.0.1:{tcp.getsockname()[1]}"
            process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"LISTEN_FDS": "2"}, "LISTEN_FDS is 2, but descriptor 4 is not open"),
        ({"LISTEN_FDS": "2000000000"}, "LISTEN_FDS is 2000000000, but descriptor 4 is not open"),
        ({"LISTEN_FDS": "-1"}, 'LISTEN_FDS is "-1"; give the number of sockets'),
        ({"LISTEN_FDS": "many"}, 'LISTEN_FDS is "many"; give the number of sockets'),
        ({"LISTEN_FDS": "99999999999999999999"}, "give the number of sockets"),
    ],
)
def test_a_wrong_number_of_passed_sockets_is_one_clear_line(variables, error):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        assert error in refused([tcp], "cache", **variables)


def test_a_passed_socket_that_does_not_listen_for_streams_is_one_clear_line(tmp_path):
    with socket.socket(type=socket.SOCK_DGRAM) as udp, (tmp_path / "file").open("w") as file:
        for each in (udp, file):
            line = refused([each], "cache")
            assert (
                'descriptor 3, named "cache", is not a stream socket that listens on TCP or on a path' in line
            )
    with socket.socket() as silent:
        assert 'the socket named "cache" does not listen for streams' in refused([silent], "cache")


def refused(sockets, names, **variables):
    """Return the one line of a proxy that does not start with these sockets."""
    options = passing(sockets, names, **variables)
    command = [*options.pop("command"), "proxy", "--server", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, **options)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    return done.stderr


def test_a_successor_takes_over_the_sockets(tmp_path):
    control = tmp_path / "control"
    with backend() as servers, ExitStack() as processes:
        arguments = ("--server", servers[0], "--control", control, "--hand-over-wait", "20s")
        first, old = processes.enter_context(proxy("--listen", "127.0.0.1:0", *arguments))
        host, port = first.rsplit(":", 1)
        staying = socket.create_connection((host, int(port)), timeout=10)
        for _ in range(3):
            ready, new = processes.enter_context(proxy("--take-over", control, *arguments))
            assert ready == first, "the same socket, though no address was given"
            assert ask(staying).startswith(b"VERSION"), "a client that connected before is still served"
            staying.close()
            # The old process exits by itself when its last client has disconnected.
            assert old.wait(timeout=20) == 0
            old = new
            staying = socket.create_connection((host, int(port)), timeout=10)
            assert ask(staying).startswith(b"VERSION")
        staying.close()
        old.send_signal(signal.SIGTERM)
        assert old.wait(timeout=20) == 0
    assert not control.exists()


def test_configuration_errors_print_one_line(tmp_path):
    server = ("--server", "127.0.0.1:1")
    one_line(run("proxy", "--take-over", tmp_path / "none", *server), "cannot take over from", "none")
    one_line(
        run("proxy", "--control", "/nowhere/control", "--listen", "127.0.0.1:0", *server), "/nowhere/control"
    )
    one_line(run("proxy", "--listen", "::1:11211", *server), "an IPv6 address needs brackets")
    one_line(run("proxy", "--listen", "unix:/nowhere/x", *server), "cannot listen on unix:/nowhere/x")
    one_line(run("proxy", "--listen", "127.0.0.1:0", "--server", "a b:1"), "--server", "the host is neither")


def test_a_server_name_that_does_not_resolve_is_a_warning():
    options = {"stderr": subprocess.PIPE}
    with proxy("--listen", "127.0.0.1:0", "--server", "nowhere.invalid:11211", **options) as (_, process):
        process.send_signal(signal.SIGTERM)
        lines = process.stderr.read().splitlines()
        process.stderr.close()
    (line,) = [line for line in lines if "cannot be resolved" in line]
    assert " warn " in line and "--server nowhere.invalid:11211 cannot be resolved" in line


# A process that listens on a control path and hands over a socket of its own. Prints a line when it listens.
STRANGER = """
import array, os, socket, sys
path, address, user = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.setgroups([]), os.setgid(user), os.setuid(user)
mine = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.bind(path)
control.listen()
print("listens", flush=True)
asking, _ = control.accept()
asking.recv(1000)
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [mine.fileno()]))]
asking.sendmsg([address.encode() + b"\\n"], rights)
print(asking.recv(1000), flush=True)
asking.send(b"stopped")
asking.recv(1000)
"""


def test_nothing_is_taken_over_from_a_stranger():
    if os.getuid() != 0:
        pytest.skip("only root can run a program of another user")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o777)
        control = f"{folder}/control"
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        stranger = subprocess.Popen(
            [sys.executable, "-c", STRANGER, control, address, "65534"], stdout=subprocess.PIPE, text=True
        )
        stack.callback(stranger.wait)
        stack.callback(stranger.kill)
        stack.enter_context(stranger.stdout)
        assert stranger.stdout.readline() == "listens\n"
        arguments = ["proxy", "--listen", address, "--server", "127.0.0.1:1", "--take-over", control]
        ended = subprocess.run(
            [WAYSTAGE, *arguments], check=False, capture_output=True, text=True, timeout=30
        )
        assert ended.returncode == 1
        one_line(ended, f"cannot take over from {control}: the process there runs as user 65534, not as root")
