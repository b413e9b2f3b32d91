"""An S3 server, moto's, behind a proxy that loses answers and refuses requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from urllib.parse import quote, urlencode, urlsplit

import boto3
from moto.server import ThreadedMotoServer

from tests.doubles.http_double import Answer, Asked, Faults, serving

REFUSED = "<Error><Code>AccessDenied</Code><Message>the key {key} may not</Message></Error>"
AWAY = "<Error><Code>InternalError</Code><Message>no</Message></Error>"


@dataclass
class S3Storage:
    """Where moto serves, and what goes wrong with what is written there."""

    moto: str
    faults: Faults = field(default_factory=Faults)
    written: list[str] = field(default_factory=list)
    """Each path and query that something was written to."""
    url: str = ""

    def answer(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            return self._forward(asked)
        if status := self.faults.refusal():
            key = asked.headers.get("authorization", "")
            said = REFUSED.format(key=key) if status < 500 else AWAY
            return Answer(status, said.encode(), {"Content-Type": "application/xml"})
        self.written.append(f"{asked.method} {asked.path}?{urlencode(asked.query)}")
        return self.faults.after(self._forward(asked))

    def objects(self, bucket: str) -> dict[str, bytes]:
        client = self.client()
        listed = client.list_objects_v2(Bucket=bucket).get("Contents", ())
        return {
            each["Key"]: client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
            for each in listed
        }

    def unfinished(self, bucket: str) -> int:
        """How many uploads in parts have neither ended nor been given up."""
        return len(self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ()))

    def client(self) -> "boto3.client":
        return boto3.client(
            "s3", endpoint_url=self.moto, region_name="us-east-1", aws_access_key_id="own",
            aws_secret_access_key="own",
        )  # fmt: skip

    def _forward(self, asked: Asked) -> Answer:
        connection = HTTPConnection(urlsplit(self.moto).netloc, timeout=30)
        try:
            query = urlencode(asked.query)
            path = quote(asked.path, safe="/%")
            sent = {name: value for name, value in asked.headers.items() if name != "host"}
            connection.request(asked.method, f"{path}?{query}" if query else path, asked.body, sent)
            found = connection.getresponse()
            body = found.read()
            kept = {
                name: value for name, value in found.getheaders()
                if name.lower() not in ("content-length", "connection", "transfer-encoding")
            }  # fmt: skip
            return Answer(found.status, body, kept)
        finally:
            connection.close()


@contextmanager
def s3_serving(bucket: str) -> Iterator[S3Storage]:
    """A server with this bucket, for as long as it is held."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = S3Storage(f"http://{host}:{port}")
    try:
        _reset(found.moto)
        found.client().create_bucket(Bucket=bucket)
        with serving(found.answer) as url:
            found.url = url
            yield found
    finally:
        server.stop()


def _reset(moto: str) -> None:
    """Forget what other servers of this process have stored, which moto keeps in one place."""
    connection = HTTPConnection(urlsplit(moto).netloc, timeout=30)
    connection.request("POST", "/moto-api/reset")
    assert connection.getresponse().status == 200
    connection.close()
