"""The certificates of region caches, and the token by which nodes are let in.

A region has a certificate authority of its own, whose key is derived from the key of the region's
site, as is everything here: nothing has to be kept, each call gives the same bytes, and the process
of one region cannot speak for the cache of another. The authority may vouch for private addresses
alone, so that a program that trusts it trusts nothing else by it.
"""

import hashlib
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from activities.secrets.sealing import site_key

BEGIN, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""Wide, because the clocks of machines are often wrong; it ends with the region's key."""
NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8")
NO_NAMES = "cache.invalid"
"""The only domain for which the authority may vouch: none that exists."""
_KEY_BYTES = 32
_SERIAL_BYTES = 16


def region_authority(region_id: str) -> str:
    """The certificate of the region's authority, in PEM, by which nodes know their cache.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    key = _key(region_id, "authority")
    networks = [x509.IPAddress(IPv4Network(each)) for each in NETWORKS]
    subtrees = [*networks, x509.DNSName(NO_NAMES)]
    builder = (
        _builder(_authority_name(region_id), _authority_name(region_id), key, "authority")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(subtrees, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, None).public_bytes(Encoding.PEM).decode()


def server_identity(region_id: str, node_id: str, address: str) -> str:
    """The certificate and the private key of a storage node's cache at an address, in PEM.

    It goes to that node alone, and stays there with root.
    Raises: MasterKeyError, when there is no usable key; ValueError, for no IPv4 address.
    """
    purpose = f"server/{node_id}/{IPv4Address(address)}"
    key, authority = _key(region_id, purpose), _key(region_id, "authority")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id)])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    addresses = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
    builder = (
        _builder(name, _authority_name(region_id), key, purpose)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(server, critical=False)
        .add_extension(addresses, critical=False)
        .add_extension(identifier, critical=False)
    )
    certificate = builder.sign(authority, None).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (certificate + private).decode()


def cache_token(region_id: str) -> str:
    """The token by which the region's nodes are let in at its cache; jobs never get it.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return _derived(region_id, "token").hex()


def _authority_name(region_id: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"baseload {region_id}"[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PrivateKey, purpose: str
) -> x509.CertificateBuilder:
    serial = hashlib.sha256(purpose.encode()).digest()[:_SERIAL_BYTES]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(serial, "big"))
        .not_valid_before(BEGIN)
        .not_valid_after(END)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key(region_id: str, purpose: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_derived(region_id, purpose))


def _derived(region_id: str, purpose: str) -> bytes:
    info = f"region cache/{purpose}".encode()
    derivation = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info)
    return derivation.derive(site_key(region_id))
