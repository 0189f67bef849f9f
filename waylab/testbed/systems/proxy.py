"""The system `proxy`: starts `waystage proxy` in front of memcached servers."""

from waylab.testbed.systems.key_value import RunningProxiedSystem


class RunningProxySystem(RunningProxiedSystem):
    """`waystage proxy`, which takes a free port and reports it."""

    def prefill(self, addresses: list[str]) -> None:
        """Set every key; if the proxy has a fault that makes writes slow, through another proxy without the fault.

        A writer that polls needed 70 s for 10 000 keys, before a trial of 15 s.
        """
        proxy = self.trial.system.proxy
        if not (proxy.fault_write_poll or proxy.fault_write_hold) or len(self.generators) == 1:
            super().prefill(addresses)
            return
        host = self.host_of("proxy")
        command = [*self._start(host.address, self.servers), "--replicas", str(proxy.replicas)]
        command += ["--backend-timeout", proxy.backend_timeout]
        filling = self.start(host, "fill-proxy", command, drained=True)
        super().prefill([filling.wait_until_ready()])
        filling.stop()

    def start_proxy(self, index: int, servers: list[str]) -> str:
        """Start one proxy."""
        host = self.host_of("proxy", index)
        command = self._command(host.address, servers)
        if host.paced_cores:
            # The loops of all proxies of a host share its cores.
            proxies = sum(self.host_of("proxy", other) is host for other in range(self.counts["proxy"]))
            loops = proxies * self.trial.system.proxy.loops
            command += ["--slow-down", f"{loops / host.paced_cores:.6g}"]
        if self.serves_stages(host):
            command += ["--metrics", f"{host.address}:0"]
        process = self.start(host, self.name_of("proxy", index), command, drained=True)
        address = process.wait_until_ready()
        metrics = process.metrics_address()
        if metrics:
            self.stage_metrics[process.name] = f"http://{metrics}/metrics"
        return address

    def _start(self, listen_address: str, servers: list[str]) -> list[str]:
        command = [str(self.waystage), "proxy", "--listen", f"{listen_address}:0"]
        return [*command, *(part for server in servers for part in ("--server", server))]

    def _command(self, listen_address: str, servers: list[str]) -> list[str]:
        proxy = self.trial.system.proxy
        command = self._start(listen_address, servers)
        command += ["--replicas", str(proxy.replicas), "--loops", str(proxy.loops), "--stamps", proxy.stamps]
        command += ["--backend-timeout", proxy.backend_timeout, "--dispatch", proxy.dispatch]
        for name, slots in proxy.slots().items():
            command += [f"--{name}", str(slots)]
        if proxy.fault_write_poll:
            command += ["--fault-write-poll", proxy.fault_write_poll]
        if proxy.dispatch == "shared":
            command += ["--multi-get", proxy.multi_get]
        if proxy.fault_write_hold:
            command += ["--fault-write-hold", proxy.fault_write_hold]
        if proxy.stamps != "off":
            command += ["--records", str(self.records), "--sample", str(proxy.sample)]
        return command
