"""Principals of client certificates: the subject as RFC 2253 writes it."""

import datetime
import ssl
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.security.principals import ANONYMOUS, principal_of

SUBJECTS = [
    [(NameOID.COUNTRY_NAME, "TR"), (NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, "app")],
    [(NameOID.COMMON_NAME, 'odd, +"\\<>; name')],
    [(NameOID.COMMON_NAME, "#hash"), (NameOID.ORGANIZATIONAL_UNIT_NAME, " both ends ")],
    [(NameOID.DOMAIN_COMPONENT, "com"), (NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "u=1")],
    [
        (NameOID.STATE_OR_PROVINCE_NAME, "İzmir"),
        (NameOID.LOCALITY_NAME, "L"),
        (NameOID.STREET_ADDRESS, "S 1"),
    ],
]


def described(subject: list[tuple[x509.ObjectIdentifier, str]]) -> tuple[x509.Name, dict[str, Any]]:
    """The name, and what the ssl module tells of a certificate that carries it."""
    name = x509.Name([x509.NameAttribute(*attribute) for attribute in subject])
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    as_ca = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = as_ca.sign(key, hashes.SHA256())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
    (returned,) = context.get_ca_certs()
    return name, returned


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_certificate_gives_its_subject_as_rfc_2253_writes_it(
    subject: list[tuple[x509.ObjectIdentifier, str]],
) -> None:
    name, returned = described(subject)
    assert principal_of(returned) == f"User:{name.rfc4514_string()}"


def test_without_a_certificate_the_principal_is_anonymous() -> None:
    assert principal_of(None) == principal_of({}) == principal_of({"subject": ()}) == ANONYMOUS
