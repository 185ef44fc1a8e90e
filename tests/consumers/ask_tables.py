"""Asks DuckDB: prints the rows of each query of a file as JSON, a list of objects a query.

    ask_tables.py QUERIES.sql    in the folder that the queries' paths are relative to
"""

import json
import pathlib
import sys

import duckdb

answers = []
for query in duckdb.extract_statements(pathlib.Path(sys.argv[1]).read_text()):
    answer = duckdb.execute(query)
    columns = [column[0] for column in answer.description]
    answers.append([dict(zip(columns, row)) for row in answer.fetchall()])
print(json.dumps(answers, default=float))
