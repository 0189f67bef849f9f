"""Tests the service with other methods, malformed bytes and large requests. It must survive all of them."""

import json
import socket

import httpx
import pytest

# Shared, because creating one loads every certificate authority.
HTTP = httpx.Client(verify=False)
PROBLEM = "application/problem+json"
METHODS = {
    "/v1/queues": {"GET", "HEAD"},
    "/v1/queues/orders": {"GET", "HEAD", "PUT", "DELETE"},
    "/v1/queues/orders/messages": {"POST"},
    "/v1/queues/orders/messages:pop": {"POST"},
    "/v1/messages/head": {"GET", "HEAD"},
    "/healthz": {"GET", "HEAD"},
    "/docs": {"GET", "HEAD"},
}


def ask(url, request):
    """Send these bytes and read until the service closes or has replied. Return the status and the rest."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        if b"content-length: 10\r\n" in request:
            # Fewer bytes than announced. Other clients that hang up get no reply.
            connection.shutdown(socket.SHUT_WR)
        reply = b""
        while piece := connection.recv(65536):
            reply += piece
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else None, body


def request(line, *headers):
    return b"\r\n".join([line, b"host: localhost", b"connection: close", *headers, b"", b""])


@pytest.mark.parametrize("path", METHODS)
def test_other_methods_get_405_with_the_allowed_ones(url, path):
    for method in {"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY", "X"} - METHODS[path]:
        reply = HTTP.request(method, url + path)
        assert reply.status_code == 405, (method, path)
        assert {name.strip() for name in reply.headers["allow"].split(",")} == METHODS[path]
        assert reply.headers["content-type"] == PROBLEM
        assert reply.json()["type"] == "urn:waystage:problem:method-not-allowed"


def test_head_is_get_without_the_body(url, client, queue):
    client.send(queue, b"12345")
    for path in ["/v1/queues", f"/v1/queues/{queue}/messages/head", "/openapi.json", "/nowhere", "/metrics"]:
        got, head = HTTP.get(url + path), HTTP.head(url + path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize(
    ("line", "headers", "statuses"),
    [
        (b"PUT /v1/queues/\xff HTTP/1.1", [], {400, 422}),
        (b"PUT /v1/queues/%ff HTTP/1.1", [], {422}),
        (b"PUT /v1/queues/%00 HTTP/1.1", [], {422}),
        (b"PUT /v1/queues/a%0d%0ab HTTP/1.1", [], {422}),
        (b"PUT /v1/queues/%2e%2e HTTP/1.1", [], {422}),
        (b"PUT /v1/queues/a/b HTTP/1.1", [], {404}),
        (b"PUT /v1/queues/ HTTP/1.1", [], {404}),
        (b"PUT /v1/queues/" + b"a" * 5000 + b" HTTP/1.1", [], {422}),
        (b"GET http://elsewhere/v1/queues HTTP/1.1", [], {200}),
        (b"OPTIONS * HTTP/1.1", [], {404, 405}),
        (b"GET /v1/queues?\xff=1 HTTP/1.1", [], {400}),
        (b"GET /v1/queues?%ff=1 HTTP/1.1", [], {400}),
        (b"GET /v1/queues?%zz HTTP/1.1", [], {400}),
        (b"GET /v1/queues?max=1&max=2 HTTP/1.1", [], {400}),
        (b"GET /v1/messages/head?from=a&from=a HTTP/1.1", [], {400}),
        (b"GET /v1/messages/head?from=a&max=1%00 HTTP/1.1", [], {400}),
        (b"GET /v1/messages/head?from=a&max=99999999999999999999999 HTTP/1.1", [], {400}),
        (b"GET /v1/messages/head?from=a&max=-1 HTTP/1.1", [], {400}),
        (b"GET /v1/messages/head?from=a&max=1e1 HTTP/1.1", [], {400}),
        (b"POST /v1/queues/q/messages:pop?wait=1e99s HTTP/1.1", [], {400}),
        (b"POST /v1/queues/q/messages:pop?wait=" + b"9" * 400 + b"s HTTP/1.1", [], {400}),
        (b"POST /v1/queues/q/messages:pop?wait=-1s HTTP/1.1", [], {400}),
        (b"POST /v1/queues/q/messages:pop?wait=NaNs HTTP/1.1", [], {400}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"waystage-sender: a\x01b"], {400, 422}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"waystage-sender: \xc3\xa4"], {422}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"waystage-sender: a", b"waystage-sender: b"], {422}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"content-length: -1"], {400}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"content-length: 99999999999999999999999"], {400, 413}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"waystage-sender: a", b"content-length: 9999999"], {413}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"waystage-sender: a", b"content-length: 10"], {400, None}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"content-length: 1", b"content-length: 2"], {400}),
        (b"POST /v1/queues/q/messages HTTP/1.1", [b"transfer-encoding: nonsense"], {400, 501}),
        (b"POST /v1/queues/q/messages HTTP/9.9", [], {400, 505, None}),
        (b"GET /v1/queues HTTP/1.1", [b"x: " + b"y" * 500_000], {431, None}),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1", [], {404, 414, 431, None}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [], {400, None}),
        (b"stats", [], {400, None}),
    ],
)
def test_malformed_requests_are_refused(url, line, headers, statuses):
    try:
        status, body = ask(url, request(line, *headers))
    except ConnectionResetError:
        # The kernel resets the connection if the service leaves bytes unread.
        status, body = None, b""
    assert status in statuses
    if status in {404, 413, 422} or (status == 400 and body):
        problem = json.loads(body)
        assert problem["status"] == status and problem["type"].startswith("urn:waystage:problem:")
    assert HTTP.get(f"{url}/healthz").text == "ok\n"


@pytest.mark.parametrize(
    ("media_type", "status"),
    [
        (None, 201),
        ("application/json", 201),
        ("Application/JSON ; charset=utf-8", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonx", 415),
        ("", 415),
    ],
)
def test_a_document_needs_a_json_media_type_or_none(url, queue, media_type, status):
    headers = {"waystage-sender": "a"} | ({} if media_type is None else {"content-type": media_type})
    document = b'{"messages": [{"body": "x"}]}'
    reply = HTTP.post(f"{url}/v1/queues/{queue}/messages:batch", headers=headers, content=document)
    assert reply.status_code == status, reply.text
    if status != 201:
        assert reply.json()["type"] == "urn:waystage:problem:not-json"


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[]", 400),
        (b'{"messages": null}', 400),
        (b'{"messages": {}}', 400),
        (b'{"messages": [1]}', 400),
        (b'{"messages": [{}]}', 400),
        (b'{"messages": [{"body": null}]}', 400),
        (b'{"messages": [{"body": 1}]}', 400),
        (b'{"messages": [{"body": "x", "body_base64": "eA=="}]}', 400),
        (b'{"messages": [{"body": "\xff"}]}', 400),
        (b'{"messages": [{"body": "\\ud800"}]}', 400),
        (b'{"messages": [{"body_base64": "e"}]}', 400),
        (b'{"messages": [{"to": "", "body": "x"}]}', 422),
        (b'{"messages": [{"to": "a b", "body": "x"}]}', 422),
        (b'{"messages": [{"body": "x"}], "messages": []}', 400),
        (b'{"messages": [{"body": "x"}]} x', 400),
        (b'{"messages": ' + b"[" * 10_000, 400),
        (b'\xef\xbb\xbf{"messages": [{"body": "x"}]}', 400),
        ('{"messages": [{"body": "x"}]}'.encode("utf-16"), 400),
        (b'{"messages": [{"body": "\\u0000"}]}', 201),
        (b'{"messages": [{"to": null, "body": ""}]}', 201),
    ],
)
def test_invalid_documents_store_nothing(url, client, queue, document, status):
    headers = {"waystage-sender": "a", "content-type": "application/json"}
    reply = HTTP.post(f"{url}/v1/queues/{queue}/messages:batch", headers=headers, content=document)
    assert reply.status_code == status, reply.text
    assert len(client.pop_batch(10, queue)) == (1 if status == 201 else 0)
