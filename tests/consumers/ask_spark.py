"""Asks Spark: prints the rows of each query of a file as JSON, as ask_tables.py does for DuckDB.

    ask_spark.py QUERIES.sql     in the folder that the queries' paths are relative to
"""

import json
import pathlib
import re
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

# Its parser knows no comments after the last query.
text = "\n".join(line for line in pathlib.Path(sys.argv[1]).read_text().splitlines() if not line.startswith("--"))
for path, table in set(re.findall(r"'(fleet/\*/\*/(\w+)\.parquet)'", text)):
    spark.read.option("basePath", "fleet").parquet(path).createOrReplaceTempView(table)
queries = re.sub(r"'fleet/\*/\*/(\w+)\.parquet'", r"\1", text).split(";")
answers = [[row.asDict() for row in spark.sql(query).collect()] for query in queries if query.strip()]
print(json.dumps(answers, default=float))
