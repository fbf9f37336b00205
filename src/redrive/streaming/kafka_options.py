"""Options of Spark's Kafka source, a Java client, for a cluster."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from redrive.errors import TransientFault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.configuration import JobConfiguration
    from redrive.kafka.connection import Connection

_ALLOWED_ENDPOINTS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The system property that lets Kafka's Java client request tokens from an endpoint."""


def kafka_options(spark: SparkSession, connection: Connection) -> dict[str, str]:
    """Options of Spark's Kafka source for a cluster.

    Certificates are read each time, so that a starting query uses renewed ones.

    Raises:
        TransientFault: A certificate or its key is missing, such as during a renewal.
    """
    connection = connection.with_endpoint()
    try:
        settings = dict(connection.java())
    except OSError as error:
        raise TransientFault(f"{error.filename} cannot be read: {error.strerror}") from error
    if connection.uses_oauth:
        java: Any = spark.sparkContext._jvm  # noqa: SLF001 - it has no public name
        java.System.setProperty(_ALLOWED_ENDPOINTS, connection.oauth_endpoint)
    password = settings.pop("ssl.key.password", "")
    if password:
        settings["ssl.keystore.key"] = _decrypted(spark, settings["ssl.keystore.key"], password)
    return {f"kafka.{name}": value for name, value in settings.items()}


def _decrypted(spark: SparkSession, key: str, password: str) -> str:
    """A key in PEM without its encryption: Java has PBES2, but Kafka's client does not use it."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - it has no public name
    match = re.search("-----BEGIN ENCRYPTED PRIVATE KEY-----(.*?)-----END", key, re.DOTALL)
    if match is None:
        raise TransientFault("the key of the client certificate is no longer encrypted")
    java = gateway.jvm.javax.crypto
    encrypted = java.EncryptedPrivateKeyInfo(base64.b64decode(match[1]))
    parameters = encrypted.getAlgParameters()
    characters = gateway.new_array(gateway.jvm.char, len(password))
    for index, character in enumerate(password):
        characters[index] = character
    secret = java.SecretKeyFactory.getInstance(parameters.toString()).generateSecret(
        java.spec.PBEKeySpec(characters)
    )
    cipher = java.Cipher.getInstance(parameters.toString())
    cipher.init(java.Cipher.DECRYPT_MODE, secret, parameters)
    plain = base64.b64encode(bytes(encrypted.getKeySpec(cipher).getEncoded())).decode("ascii")
    return f"-----BEGIN PRIVATE KEY-----\n{plain}\n-----END PRIVATE KEY-----\n"


def executor_options(configuration: JobConfiguration) -> dict[str, str]:
    """Properties that let Java on other machines request tokens, and the user's own options."""
    if configuration.is_local or not configuration.connection.uses_oauth:
        return {}
    name = "spark.executor.extraJavaOptions"
    own = f"-D{_ALLOWED_ENDPOINTS}={configuration.connection.oauth_endpoint}"
    return {name: f"{configuration.spark_properties.get(name, '')} {own}".strip()}
