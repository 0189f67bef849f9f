"""The system of one trial on this host, loopback only: backends, proxy, load generator.

A context: whatever happens inside, on leaving no process is left behind.
"""

import getpass
import os
from pathlib import Path
from types import TracebackType

from waylab.plan import Trial
from waylab.spec import size_bytes
from waylab.testbed.processes import Process, TestbedError, free_port
from waylab.testbed.programs import Programs

_PORT_ATTEMPTS = 5


class LocalTestbed:
    """The processes of one trial, in the order in which they were started."""

    __test__ = False

    def __init__(self, trial: Trial, programs: Programs, directory: Path) -> None:
        self._trial = trial
        self._programs = programs
        self._logs = directory / "logs"
        self._records = directory / "records"
        self._summary = directory / "load.json"
        self.processes: list[Process] = []
        self.server = programs.server_for(trial.system.backends.server, trial.system.backends.service_time)

    def __enter__(self) -> "LocalTestbed":
        self._logs.mkdir(parents=True, exist_ok=True)
        self._records.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def bring_up(self) -> str:
        """Start backends and proxy; return the address that the load goes to."""
        system = self._trial.system
        count = system.backends.count if system.kind == "proxy" else 1
        addresses = [self._start_backend(index) for index in range(count)]
        return self._start_proxy(addresses) if system.kind == "proxy" else addresses[0]

    def start_load(self, address: str) -> Process:
        """Start the load generator."""
        load = self._trial.load
        command = [str(self._programs.waystage), "load", "--server", address]
        command += ["--clients", str(load.clients), "--threads", str(load.threads), "--ratio", load.ratio]
        command += ["--data-size", str(load.data_size), "--key-minimum", str(load.key_minimum)]
        command += ["--key-maximum", str(load.key_maximum), "--multi-key-get", str(load.multi_key_get)]
        command += ["--pipeline", str(load.pipeline), "--think-time", load.think_time]
        command += ["--test-time", seconds_text(load.test_time_s), "--warm-up", seconds_text(load.warm_up_s)]
        command += [
            "--seed",
            str(self._trial.seed),
            "--sample",
            str(load.sample),
            "--records",
            str(self._records),
        ]
        command += ["--json-out-file", str(self._summary), "--quiet"]
        return self._start("load", command)

    def stop(self) -> None:
        """Stop everything, the last started first; each has time to write its records."""
        for process in reversed(self.processes):
            process.ask_to_stop()
            if process.name.startswith("proxy"):
                # The backends stay until the proxy has finished what is in flight.
                process.wait(2.0)
        try:
            for process in reversed(self.processes):
                process.stop()
        except BaseException:
            for process in self.processes:
                process.stop()
            raise

    def _start(self, name: str, command: list[str]) -> Process:
        process = Process(name, command, self._logs)
        self.processes.append(process)
        return process

    def _start_backend(self, index: int) -> str:
        return self._start_memcached(index) if self.server == "memcached" else self._start_cache(index)

    def _start_cache(self, index: int) -> str:
        backends = self._trial.system.backends
        command = [str(self._programs.waystage), "cache", "--listen", "127.0.0.1:0"]
        command += ["--memory-limit", backends.memory, "--service-time", backends.service_time]
        command += ["--workers", str(backends.workers)]
        command += ["--seed", str((self._trial.seed + 7919 * backends.seed + index) % (1 << 31))]
        if self._trial.system.kind == "direct":
            # Behind a proxy the sampled requests of both sides are not the same ones: nothing could be joined.
            command += ["--records", str(self._records), "--sample", str(self._trial.load.sample)]
        return self._start(f"backend-{index}", command).wait_until_ready()

    def _start_memcached(self, index: int) -> str:
        backends = self._trial.system.backends
        for attempt in range(_PORT_ATTEMPTS):
            port = free_port()
            command = [str(self._programs.memcached), "-l", "127.0.0.1", "-p", str(port), "-U", "0"]
            command += ["-m", str(max(1, size_bytes(backends.memory) >> 20)), "-t", str(backends.threads)]
            command += ["-c", "16384"] + (["-u", getpass.getuser()] if os.geteuid() == 0 else [])
            process = self._start(f"backend-{index}", command)
            try:
                return process.wait_until_serving(port)
            except TestbedError:
                # Somebody else may have taken the port in between.
                if attempt == _PORT_ATTEMPTS - 1:
                    raise
                process.stop()
                self.processes.remove(process)
        raise AssertionError("unreachable")

    def _start_proxy(self, servers: list[str]) -> str:
        proxy = self._trial.system.proxy
        command = [str(self._programs.waystage), "proxy", "--listen", "127.0.0.1:0"]
        for server in servers:
            command += ["--server", server]
        command += ["--replicas", str(proxy.replicas), "--loops", str(proxy.loops), "--stamps", proxy.stamps]
        command += ["--backend-timeout", proxy.backend_timeout, "--dispatch", proxy.dispatch]
        for name, slots in proxy.slots().items():
            command += [f"--{name}", str(slots)]
        if proxy.dispatch == "shared":
            command += ["--multi-get", proxy.multi_get]
        if proxy.stamps != "off":
            command += ["--records", str(self._records), "--sample", str(proxy.sample)]
        return self._start("proxy", command).wait_until_ready()


def seconds_text(time_s: float) -> str:
    """Write seconds as the programs read them."""
    return f"{round(time_s * 1000)}ms"
