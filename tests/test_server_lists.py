"""The servers of a pool follow a file, or the addresses of a host name, while clients lose no request."""

import os
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager

import pytest
from programs import WAYSTAGE, connect, free_ports, need
from proxies import Lines, ask, until

PROXY = """
listen = "127.0.0.1:{port}"
metrics = "127.0.0.1:{metrics}"
loops = 2
[[pools]]
name = "main"
servers-file = "{file}"
"""


@contextmanager
def memcached(*addresses):
    """Start a memcached on each address."""
    need("memcached", instead="lists.rs tests the lists without servers")
    with ExitStack() as stack:
        for address in addresses:
            host, port = address.split(":")
            command = ["memcached", "-u", "root", "-U", "0", "-l", host, "-p", port]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@contextmanager
def proxy(file, port, command=()):
    """Start a proxy; yields its process and its log."""
    process = subprocess.Popen(
        [*command, str(WAYSTAGE), "proxy", "--config", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        connect(port).close()
        yield process, Lines(process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()


def write(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def metric(port, name):
    """The value of a metric with the pool `main`."""
    with connect(port) as stream:
        stream.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        page = stream.makefile("rb").read().decode()
    return next(
        int(line.split()[1]) for line in page.splitlines() if line.startswith(f'{name}{{pool="main"}}')
    )


def servers_of(port):
    """The servers of the proxy, in their order."""
    with connect(port) as stream:
        stream.sendall(b"stats backends\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            text += stream.recv(65536)
    lines = [line.split()[1] for line in text.decode().splitlines() if line.startswith("STAT")]
    return [line.removesuffix(":requests") for line in lines if line.endswith(":requests")]


def test_a_changed_file_changes_the_servers_without_lost_requests(tmp_path):
    port, metrics, *ports = free_ports(5)
    addresses = [f"127.0.0.1:{number}" for number in ports]
    listed, file = tmp_path / "servers", tmp_path / "proxy.toml"
    write(listed, f"# two servers\n{addresses[0]}\n{addresses[1]}:2\n")
    file.write_text(PROXY.format(port=port, metrics=metrics, file=listed))
    with memcached(*addresses), proxy(file, port) as (_, log):
        for number in ports:
            connect(number).close()
        is_over, failed, asked = threading.Event(), [], []

        def client(number):
            with connect(port) as stream:
                while not is_over.is_set():
                    key = b"k%d-%d" % (number, len(asked) % 50)
                    ask(stream, b"set %s 0 0 1\r\nx\r\n" % key, b"STORED\r\n")
                    asked.append(key)

        def checked(number):
            try:
                client(number)
            except BaseException as error:
                failed.append(error)

        clients = [threading.Thread(target=checked, args=(number,)) for number in range(4)]
        for thread in clients:
            thread.start()
        try:
            # Mistakes in the configuration file do not keep the pool from its servers.
            file.write_text("this is no configuration")
            for turn, wanted in enumerate((addresses, addresses[1:], addresses[:1])):
                write(listed, "".join(f"{address}\n" for address in wanted))
                log.wait_for("reloaded the configuration")
                until("other servers", lambda wanted=wanted: servers_of(port) == list(wanted))
                until(
                    "a change is counted",
                    lambda turn=turn: metric(metrics, "waystage_server_list_changes_total") == turn + 1,
                )
        finally:
            is_over.set()
            for thread in clients:
                thread.join()
        assert not failed and asked
        assert metric(metrics, "waystage_server_list_failures_total") == 0


BAD = {
    "cut off": ("127.0.0.1:11", "no line end"),
    "empty": ("", "there are no servers in it"),
    "garbage": ("\x00\x01{]\n", "line 1"),
    "a thousand": ("".join(f"10.0.{n // 250}.{n % 250}:1\n" for n in range(1000)), "more than 250 servers"),
    "too few": ("127.0.0.1:1\n", "replicas"),
    "a weight": ("127.0.0.1:1\n127.0.0.1:2:0\n", 'line 2: "127.0.0.1:2": weight = 0: give a number'),
}


def check(file):
    """Run --check; returns its exit code and its output."""
    command = [str(WAYSTAGE), "proxy", "--check", "--config", str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_check_shows_where_servers_come_from_and_names_the_line_of_a_wrong_one(tmp_path):
    listed, file = tmp_path / "servers", tmp_path / "proxy.toml"
    write(listed, "127.0.0.1:1\n# comment\ncache.test:2:3\n")
    file.write_text(PROXY.format(port=1, metrics=2, file=listed) + 'resolve = "all"\n')
    code, output = check(file)
    assert code == 0, output
    assert f"  servers  2 servers found in {listed}\n" in output, output
    names = "each address of a host name is a server: 1 host name, not resolved by --check"
    assert f"  resolve  {names}\n" in output, output
    write(listed, "127.0.0.1:1\n# comment\n127.0.0.1:2:1001\n")
    expected = (
        f'servers-file = "{listed}": line 3: "127.0.0.1:2": weight = 1001: give a number from 1 to 1000'
    )
    code, output = check(file)
    assert code == 2 and f"proxy.toml:7: {expected}" in output, output


def test_a_file_that_cannot_be_used_is_one_line_and_changes_nothing(tmp_path):
    port, metrics, *ports = free_ports(4)
    addresses = [f"127.0.0.1:{number}" for number in ports]
    listed, file = tmp_path / "servers", tmp_path / "proxy.toml"
    good = "".join(f"{address}\n" for address in addresses)
    write(listed, good)
    file.write_text(PROXY.format(port=port, metrics=metrics, file=listed) + "replicas = 2\n")
    with memcached(*addresses), proxy(file, port) as (process, log):
        for count, (text, expected) in enumerate(BAD.values(), 1):
            write(listed, text)
            line = log.wait_for("pool main keeps its previous servers")
            assert expected in line, line
            assert servers_of(port) == addresses
            assert metric(metrics, "waystage_server_list_failures_total") == count
        listed.unlink()
        assert "No such file" in log.wait_for("pool main keeps its previous servers")
        # A reload of the configuration keeps the servers, too, and does not log the same problem again.
        file.write_text(file.read_text() + "failures = 5\n")
        process.send_signal(signal.SIGHUP)
        log.wait_for("pools.0.failures = 5 was added")
        assert servers_of(port) == addresses
        assert metric(metrics, "waystage_server_list_failures_total") == len(BAD) + 1
        write(listed, "".join(f"{address}\n" for address in reversed(addresses)))
        log.wait_for("reloaded the configuration")
        until("other servers", lambda: servers_of(port) == addresses[::-1])
        listed.unlink()
        listed.symlink_to("/dev/full")
        assert "not a file" in log.wait_for("pool main keeps its previous servers")
        assert servers_of(port) == addresses[::-1]


def test_a_name_is_one_server_at_each_address(tmp_path):
    """The proxy runs with a file of host names of its own, in a mount namespace."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.0.3 cache.test\n127.0.0.2 cache.test\n")
    inside = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace here; lists.rs tests the names without one")
    port, metrics, server = free_ports(3)
    file = tmp_path / "proxy.toml"
    configuration = f'resolve-every = "1s"\nlisten = "127.0.0.1:{port}"\nmetrics = "127.0.0.1:{metrics}"\n'
    pool = f'[[pools]]\nname = "main"\nservers = ["cache.test:{server}"]\nresolve = "all"\n'
    file.write_text(configuration + pool)
    with memcached(*(f"127.0.0.{number}:{server}" for number in (2, 3, 4))):
        with proxy(file, port, inside) as (_, log):
            assert servers_of(port) == [f"127.0.0.2:{server}", f"127.0.0.3:{server}"]
            hosts.write_text("127.0.0.1 localhost\n127.0.0.4 cache.test\n")
            log.wait_for("reloaded the configuration")
            until("other servers", lambda: servers_of(port) == [f"127.0.0.4:{server}"])
            assert metric(metrics, "waystage_server_list_changes_total") == 1
            hosts.write_text("127.0.0.1 localhost\n")
            assert "cannot be resolved" in log.wait_for("pool main keeps its previous servers")
            assert servers_of(port) == [f"127.0.0.4:{server}"]
        refused = subprocess.run(
            [*inside, str(WAYSTAGE), "proxy", "--config", str(file)],
            check=False,
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 2 and "cannot be resolved" in refused.stderr, refused.stderr


def test_names_of_a_refused_list_or_reload_are_looked_up_again(tmp_path):
    hosts, listed, file = tmp_path / "hosts", tmp_path / "servers", tmp_path / "proxy.toml"
    hosts.write_text("127.0.0.1 localhost\n127.0.0.2 a.test\n")
    inside = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace here")
    port, metrics, server = free_ports(3)
    write(listed, f"a.test:{server}\n")
    file.write_text(PROXY.format(port=port, metrics=metrics, file=listed) + 'resolve = "all"\n')
    file.write_text('resolve-every = "1s"\n' + file.read_text())
    with proxy(file, port, inside) as (process, log):
        # A list waits for a name that has no address yet.
        write(listed, f"a.test:{server}\nb.test:{server}\n")
        assert "cannot be resolved" in log.wait_for("pool main keeps its previous servers")
        hosts.write_text("127.0.0.1 localhost\n127.0.0.2 a.test\n127.0.0.3 b.test\n")
        until("two", lambda: servers_of(port) == [f"127.0.0.2:{server}", f"127.0.0.3:{server}"])
        # A reload that fails for another reason looks the names up, but does not hide their other addresses.
        file.write_text("broken")
        hosts.write_text("127.0.0.1 localhost\n127.0.0.2 a.test\n127.0.0.4 b.test\n")
        process.send_signal(signal.SIGHUP)
        until("others", lambda: servers_of(port) == [f"127.0.0.2:{server}", f"127.0.0.4:{server}"])
        # A name that comes back has its new addresses.
        write(listed, f"a.test:{server}\n")
        until("one", lambda: servers_of(port) == [f"127.0.0.2:{server}"])
        hosts.write_text("127.0.0.1 localhost\n127.0.0.2 a.test\n127.0.0.5 b.test\n")
        write(listed, f"a.test:{server}\nb.test:{server}\n")
        log.wait_for("reloaded the configuration")
        until("back", lambda: servers_of(port) == [f"127.0.0.2:{server}", f"127.0.0.5:{server}"])


def test_pools_with_one_name_keep_their_weights_and_changes_of_operators_are_no_changes_of_a_list(tmp_path):
    hosts, file, control = tmp_path / "hosts", tmp_path / "proxy.toml", tmp_path / "control"
    hosts.write_text("127.0.0.1 localhost\n127.0.0.2 a.test\n127.0.0.3 a.test\n")
    inside = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace here")
    port, metrics, server = free_ports(3)
    text = f'resolve-every = "1s"\ncontrol = "{control}"\nlisten = "127.0.0.1:{port}"\n'
    text += f'metrics = "127.0.0.1:{metrics}"\n'
    for name, weight in (("main", 2), ("other", 9)):
        text += f'[[pools]]\nname = "{name}"\nresolve = "all"\n'
        text += f'servers = [{{ address = "a.test:{server}", weight = {weight} }}]\n'
    file.write_text(text + '[[routes]]\nprefix = "o"\npool = "other"\n')
    with proxy(file, port, inside) as (_, log):
        hosts.write_text("127.0.0.1 localhost\n")
        log.wait_for("pool other keeps its previous servers")
        command = ["drain", f"127.0.0.2:{server}", "--pool", "main", "--control", str(control)]
        subprocess.run([str(WAYSTAGE), "proxy", *command], check=True, capture_output=True)
        assert "weight" not in log.wait_for("reloaded the configuration")
        assert metric(metrics, "waystage_server_list_changes_total") == 0
