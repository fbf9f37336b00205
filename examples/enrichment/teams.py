"""Gives each dead letter the team that owns the application which put it."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name the whole field uses

HEADER = "JMS_IBM_MQMD_ApplIdentityData"
TEAMS = str(Path(__file__).with_name("teams.csv"))


def add_team(frame: DataFrame) -> DataFrame:
    """Sets ApplIdentityData, which rules know as APPLIDAT, to the team.

    Args:
        frame: A batch of messages; ``headers`` is an array of ``key`` and ``value``.

    Returns:
        The same rows in the same order. Nothing changes for an application without a team.
    """
    named = F.filter("headers", lambda header: header["key"] == "JMS_IBM_MQMD_PutApplName")
    last = F.try_element_at(named, F.lit(-1))["value"].cast("string")
    teams = frame.sparkSession.read.csv(
        TEAMS, schema="application string, team string", header=True
    )
    joined = frame.withColumn("application", F.rtrim(last)).join(
        F.broadcast(teams), "application", "left"
    )
    others = F.filter("headers", lambda header: header["key"] != HEADER)
    header = F.struct(F.lit(HEADER).alias("key"), F.encode("team", "UTF-8").alias("value"))
    enriched = F.when(F.isnull("team"), F.col("headers")).otherwise(
        F.concat(others, F.array(header))
    )
    return joined.withColumn("headers", enriched)
