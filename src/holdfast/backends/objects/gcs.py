"""Google Cloud Storage: `gs://bucket/prefix`."""

import json
from pathlib import Path

from obstore.store import GCSStore

from holdfast.backends import Store
from holdfast.backends.objects.buckets import OPTIONS, Bucket, bucket_of, settings
from holdfast.backends.objects.remote import open_bucket
from holdfast.errors import BadURL
from holdfast.url import URL

_RIGHTS = "storage.objects.get, create, delete and list: the role Storage Object User"


def open_gcs(url: URL) -> Store:
    """`gs://bucket/prefix`; credentials are the application's default ones, or a service account's key in a file."""
    url.refuse_options(known=(*OPTIONS, "credentials"))
    bucket, prefix = bucket_of(url)
    if url.user or url.password:
        msg = "a gs:// URL has no user and no password: ?credentials=/path/to/service-account.json names a key"
        raise BadURL(msg)
    retry, retries, http = settings(url)
    given: dict[str, str] = {}
    if endpoint := url.options.get("endpoint"):
        # An emulator: nobody has to prove who they are.
        key = {
            "gcs_base_url": endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        given["service_account_key"] = json.dumps(key)
    elif file := url.options.get("credentials"):
        given["service_account"] = str(Path(file).expanduser())
    client = GCSStore(
        bucket,
        config=given,  # type: ignore[arg-type]
        client_options=http,  # type: ignore[arg-type]
        retry_config=retries,  # type: ignore[arg-type]
    )
    return open_bucket(url, Bucket(client, f"gs://{bucket}", prefix, retry, deletes_many=False, rights=_RIGHTS))
