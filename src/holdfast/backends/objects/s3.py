"""S3, and whatever speaks as it does: `s3://bucket/prefix?region=eu-central-1`.

Everything rests on conditional puts. Amazon's S3 has them since the end of 2024, and so have others that speak as it
does, in versions since then. `setup` does not take a server's word for it: it tries.
"""

from obstore.store import S3Store

from holdfast.backends import Store
from holdfast.backends.objects.buckets import OPTIONS, Bucket, bucket_of, settings
from holdfast.backends.objects.remote import open_bucket
from holdfast.errors import BadURL
from holdfast.url import URL

_RIGHTS = "s3:GetObject, s3:PutObject, s3:DeleteObject on the objects, s3:ListBucket on the bucket"
_STYLES = ("path", "virtual")


def open_s3(url: URL) -> Store:
    """`s3://bucket/prefix`; credentials are in the environment, on the machine, or in the URL as user and password."""
    url.refuse_options(known=(*OPTIONS, "region", "style"))
    bucket, prefix = bucket_of(url)
    retry, retries, http = settings(url)
    endpoint = url.options.get("endpoint")
    style = url.options.get("style", "path" if endpoint else "virtual")
    if style not in _STYLES:
        msg = f"style must be one of {', '.join(_STYLES)}, not {style!r}"
        raise BadURL(msg)
    if bool(url.user) != bool(url.password):
        msg = "credentials in an s3:// URL are the key's id and its secret: s3://ID:SECRET@bucket"
        raise BadURL(msg)
    given = {
        "endpoint": endpoint,
        "region": url.options.get("region"),
        "access_key_id": url.user,
        "secret_access_key": url.password,
    }
    client = S3Store(
        bucket,
        config={key: value for key, value in given.items() if value},  # type: ignore[arg-type]
        virtual_hosted_style_request=style == "virtual",
        client_options=http,  # type: ignore[arg-type]
        retry_config=retries,  # type: ignore[arg-type]
    )
    return open_bucket(url, Bucket(client, f"s3://{bucket}", prefix, retry, deletes_many=True, rights=_RIGHTS))
