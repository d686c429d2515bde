"""Signatures of requests, by the examples of Amazon's documentation."""

from allotment.service.data.objects.signing import Key, StoreRequest, path_of, query_of, signed

KEY = Key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = {"host": "examplebucket.s3.amazonaws.com"}
AT = "20130524T000000Z"


def test_an_object_is_asked_for_as_documented() -> None:
    asked = StoreRequest("GET", "/test.txt", {}, {**HOST, "range": "bytes=0-9"})
    found = signed(asked, KEY, "us-east-1", AT)
    assert found["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_a_list_is_asked_for_as_documented() -> None:
    asked = StoreRequest("GET", "/", {"prefix": "J", "max-keys": "2"}, HOST)
    found = signed(asked, KEY, "us-east-1", AT)["Authorization"]
    assert found.endswith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")


def test_names_are_sent_as_they_are_signed() -> None:
    assert path_of("models", "a b/ü+~") == "/models/a%20b/%C3%BC%2B~"
    assert query_of({"prefix": "a/b c", "list-type": "2"}) == "list-type=2&prefix=a%2Fb%20c"


def test_a_key_that_holds_for_a_while_says_so() -> None:
    key = Key("id", "secret", "session")
    found = signed(StoreRequest("GET", "/", {}, HOST), key, "eu-central-1", AT)
    assert found["x-amz-security-token"] == "session"
    assert "x-amz-security-token" in found["Authorization"]
    assert "secret" not in repr(key)
