"""The spans of the proxy, read with another implementation: the messages of OpenTelemetry for Python."""

import time
from itertools import chain

import pytest
from collector import REPLIES, Collector
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from programs import connect, free_ports
from proxies import ask, cache_servers, running_proxy

from waylab.records import read_records

KINDS = {Span.SPAN_KIND_SERVER, Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT}


@pytest.fixture
def collector():
    started = Collector()
    yield started
    started.end()


def configuration(folder, collector, servers, more=""):
    """Write a configuration in which every request is traced and recorded; return its file and the proxy's port."""
    (port,) = free_ports(1)
    file, listed = folder / "proxy.toml", ", ".join(f'"127.0.0.1:{server}"' for server in servers)
    file.write_text(
        f'listen = "127.0.0.1:{port}"\nloops = 1\ntraces = "{collector.url}"\ntraces-sample = 1\n{more}\n'
        f'records = "{folder / "records"}"\nsample = 1\n'
        f'[[pools]]\nname = "main"\nservers = [{listed}]\nreplicas = {len(servers)}\n'
    )
    return file, port


def spans_of(collector):
    """All spans that have arrived, after checking that the messages have no field that their definitions lack."""
    spans = []
    for body in collector.bodies:
        message = ExportTraceServiceRequest.FromString(body)
        message.DiscardUnknownFields()
        assert message.SerializeToString() == body
        for resource in message.resource_spans:
            names = {attribute.key for attribute in resource.resource.attributes}
            assert {"service.name", "service.version", "host.name"} <= names
            spans += [span for scope in resource.scope_spans for span in scope.spans]
    return spans


def values(span):
    """The attributes of a span."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def took_ns(span):
    """The duration of a span."""
    return span.end_time_unix_nano - span.start_time_unix_nano


def test_another_implementation_reads_the_spans_and_they_equal_the_records(tmp_path, collector):
    with cache_servers(2) as servers:
        file, port = configuration(tmp_path, collector, servers)
        with running_proxy(file), connect(port) as stream:
            for number in range(300):
                ask(stream, b"set k%d 0 0 1\r\nx\r\n" % number, b"STORED\r\n")
                ask(stream, b"get k%d other\r\n" % number, b"VALUE k%d 0 1\r\nx\r\nEND\r\n" % number)
            ask(stream, b"unknown\r\n", b"ERROR\r\n")
            ask(stream, b"mn\r\n", b"MN\r\n")
        spans = spans_of(collector)
        (path,) = (tmp_path / "records").iterdir()
    assert {span.kind for span in spans} == KINDS
    requests = {}
    for span in spans:
        assert len(span.trace_id) == 16 and len(span.span_id) == 8 and span.end_time_unix_nano > 0
        if span.kind == Span.SPAN_KIND_SERVER:
            known = values(span)
            requests[known["waystage.connection"], known["waystage.sequence"]] = span
    assert len({span.span_id for span in spans}) == len(spans)
    children = {}
    for span in spans:
        children.setdefault(span.parent_span_id, []).append(span)
    records = read_records(path)
    rows = records.parents
    totals = records.total_ns(rows)
    assert len(rows) == len(requests) == 602
    for row, total in zip(rows, totals, strict=True):
        span = requests[row["connection"], row["sequence"]]
        own = children[span.span_id]
        stages = {one.name: took_ns(one) for one in own if one.kind == Span.SPAN_KIND_INTERNAL}
        assert took_ns(span) == total == sum(stages.values())
        expected = {name: int(records.interval_ns(row.reshape(1), name)[0]) for name in records.intervals}
        assert stages == {name: time for name, time in expected.items() if time}
        legs = [one for one in own if one.kind == Span.SPAN_KIND_CLIENT]
        assert len(legs) == row["legs"] == values(span)["waystage.legs"]
        assert {values(leg)["server.port"] for leg in legs} <= set(servers)
    kinds = {span.name: span for span in requests.values()}
    assert {"set", "get", "mn"} < set(kinds)
    assert values(kinds["get"])["db.operation.batch.size"] == 2
    assert values(kinds["set"])["waystage.key"].startswith("xxh3:")
    refused = next(span for span in requests.values() if "error.type" in values(span))
    assert values(refused)["error.type"] == "client_error" and refused.status.code == Status.STATUS_CODE_UNSET


def test_a_collector_that_does_everything_wrong_disturbs_no_request(tmp_path):
    # After a success, the next pause is short again.
    replies = chain.from_iterable(("accept", reply) for reply in REPLIES)
    wrong = Collector(lambda: next(replies, "accept"))
    try:
        with cache_servers(1) as servers:
            file, port = configuration(tmp_path, wrong, servers, "traces-queue = 50")
            with running_proxy(file) as (process, _), connect(port) as stream:
                end = time.monotonic() + 90
                while not set(REPLIES) <= set(wrong.given):
                    assert time.monotonic() < end, f"not in time: {wrong.given}"
                    ask(stream, b"get a\r\n", b"END\r\n")
                assert process.poll() is None
        assert wrong.bodies and spans_of(wrong)
    finally:
        wrong.end()
